-- The figures of a queue, each of them O(log n) or less.
-- KEYS: state queue pool final dead
-- ARGV: now
-- Returns: {now, in the queue, of these due, due of the head or '', in the pool, remembered, dead, fields of state ...}
-- @flags no-writes
-- @include clock
local state, queue, pool, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
local answer = {
  digits(now), redis.call('ZCARD', queue), redis.call('ZCOUNT', queue, '-inf', digits(now)), head[2] or '',
  redis.call('HLEN', pool), redis.call('ZCARD', final), redis.call('ZCARD', dead),
}
for _, value in ipairs(redis.call('HGETALL', state)) do
  answer[#answer + 1] = value
end
return answer
