-- Delete a consumer group of a stream with its leases. The entries of the stream stay.
-- KEYS: consumers, stream, leases
-- ARGV: group. Last the deadline (see include/deadline).
-- Returns: 1 if the stream had this group, else 0
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local destroyed = redis.call('EXISTS', KEYS[2]) == 1 and redis.pcall('XGROUP', 'DESTROY', KEYS[2], ARGV[1]) or 0
if type(destroyed) == 'table' and destroyed.err then
  if not string.find(destroyed.err, 'WRONGTYPE', 1, true) then
    return destroyed
  end
  destroyed = 0 -- the key is no stream any longer
end
-- The rights that docs/operations.md names do not include DEL.
redis.call('PEXPIRE', KEYS[1], 0)
redis.call('PEXPIRE', KEYS[3], 0)
return destroyed
