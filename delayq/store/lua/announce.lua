-- Say that messages due until a time are about to be appended: it is their owner who does, and from now on cancelling
-- one of them is certain no more.
-- KEYS: state attempts guard
-- ARGV: epoch, now, until when they are due (ms)
-- Returns: {'fenced'}, {'early'} if it is not that late, or {'ok', now, 1 if any message of the queue has attempts, else 0}
-- @flags allow-oom
-- @include clock fence
local state, attempts, guard = KEYS[1], KEYS[2], KEYS[3]
local known = redis.call('HMGET', state, 'epoch', 'watermark')
if fenced(state, guard, known[1], ARGV[1]) then
  return { 'fenced' }
end
local now = clock(ARGV[2])
if tonumber(ARGV[3]) > now then
  return { 'early' }
end
if tonumber(ARGV[3]) > (tonumber(known[2] or '') or -1) then
  redis.call('HSET', state, 'watermark', ARGV[3])
end
return { 'ok', digits(now), redis.call('EXISTS', attempts) }
