-- Return whether messages can be appended to a stream. Redis checks the rights for its key before it runs the script.
-- KEYS: stream.
-- ARGV: none.
-- Returns: '', or the error that XADD would give. It is '' for a key of another type, too.
-- @flags allow-oom
-- 0-0 is never a valid id. A user with the right to write gets this error, and nothing is written.
local refused = redis.pcall('XADD', KEYS[1], '0-0', 'id', '')
if not string.find(tostring(refused.err), '0-0', 1, true) then
  return tostring(refused.err)
end
local about = redis.pcall('XINFO', 'STREAM', KEYS[1])
for i = 1, #about - 1, 2 do
  if about[i] == 'last-generated-id' and about[i + 1] == '18446744073709551615-18446744073709551615' then
    return 'ERR The stream has exhausted the last possible ID, unable to add more items'
  end
end
return ''
