-- Keep what a census of a queue has counted, in the place of the one before.
-- KEYS: state census
-- ARGV: epoch, then fields and values
-- Returns: 'ok' or 'fenced'
-- @include fence
local state, census = KEYS[1], KEYS[2]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return 'fenced'
end
local before = redis.call('HKEYS', census)
for first = 1, #before, 1000 do
  redis.call('HDEL', census, unpack(before, first, math.min(first + 999, #before)))
end
for first = 2, #ARGV, 1000 do
  redis.call('HSET', census, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return 'ok'
