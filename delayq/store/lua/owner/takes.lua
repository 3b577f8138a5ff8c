-- Whether messages can be appended to a stream. The rights for its key are looked at before this runs at all.
-- KEYS: stream
-- ARGV: none
-- Returns: '', or the error that XADD would give; a key of another type is not one that is looked for here
-- @flags allow-oom
-- 0-0 is never an id: who may write there is told so, and nothing is written.
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
