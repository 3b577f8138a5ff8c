-- Say that messages due until a time are about to be appended: it is their owner who does, and from now on cancelling
-- one of them is certain no more.
-- KEYS: state guard final, the name that the pool gets aside, keys
-- ARGV: epoch, now, until when they are due (ms), window of final, most in final
-- Returns: 'ok', 'fenced', 'early' if it is not that late, 'denied' if a transaction that fails could not be undone
-- @flags allow-oom
-- @include clock fence final
local state, guard, final, aside, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local known = redis.call('HMGET', state, 'epoch', 'watermark')
if fenced(state, guard, known[1], ARGV[1]) then
  return 'fenced'
end
local now = clock(ARGV[2])
if tonumber(ARGV[3]) > now then
  return 'early'
end
-- There is nothing aside, and nothing is done to it: an error other than that comes of missing rights.
local moved, deleted = redis.pcall('RENAME', aside, aside), redis.pcall('XDEL', aside, '0-1')
if not string.find(tostring(moved.err), 'no such key', 1, true) or deleted ~= 0 then
  return 'denied'
end
if tonumber(ARGV[3]) > (tonumber(known[2] or '') or -1) then
  redis.call('HSET', state, 'watermark', ARGV[3])
end
forget_old(final, index, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
return 'ok'
