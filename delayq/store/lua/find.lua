-- The ids of the messages that carry a business key.
-- KEYS: keys
-- ARGV: key, most to return
-- Returns: the ids
-- @flags no-writes
local members = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[1] .. '\0', '(' .. ARGV[1] .. '\1', 'LIMIT', 0, ARGV[2])
local answer = {}
for i = 1, #members do
  answer[i] = string.sub(members[i], #ARGV[1] + 2)
end
return answer
