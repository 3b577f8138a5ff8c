-- Return the complete ids of messages by the ids that their callers gave, which have no suffix of an ordering key.
-- KEYS: keys.
-- ARGV: the ids that callers gave.
-- Returns: for each id at most two complete ids. Several messages may have the same id under different keys.
-- @flags no-writes
local answer = {}
for i, asked in ipairs(ARGV) do
  local first, last = '(\1' .. asked .. '\0', '(\1' .. asked .. '\1'
  local members = redis.call('ZRANGEBYLEX', KEYS[1], first, last, 'LIMIT', 0, 2)
  for n = 1, #members do
    members[n] = string.sub(members[n], #asked + 3)
  end
  answer[i] = members
end
return answer
