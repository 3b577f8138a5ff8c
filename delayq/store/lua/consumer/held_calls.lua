-- Find calls of consumers that hold messages: a call of the same name is a repeat.
-- KEYS: of each call the consumers of its group
-- ARGV: of each call its name
-- Returns: of each call '1' or ''
-- @flags no-writes
local answer = {}
for i, call in ipairs(ARGV) do
  local known = redis.call('HMGET', KEYS[i], 'call:' .. call, 'received:' .. call)
  answer[i] = (known[1] or known[2]) and '1' or ''
end
return answer
