-- The ids of the messages that carry a business key, in order.
-- KEYS: keys
-- ARGV: key, most to return, the id behind which to begin ('': with the first)
-- Returns: the ids
-- @flags no-writes
local first, last = '(' .. ARGV[1] .. '\0' .. ARGV[3], '(' .. ARGV[1] .. '\1'
local members = redis.call('ZRANGEBYLEX', KEYS[1], first, last, 'LIMIT', 0, ARGV[2])
local answer = {}
for i = 1, #members do
  answer[i] = string.sub(members[i], #ARGV[1] + 2)
end
return answer
