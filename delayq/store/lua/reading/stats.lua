-- The figures of a queue, each of them O(log n) or less, but for the names of its parked sets. There may be as many of these as
-- topics are paused and ordering keys have failed, so most callers ask for those of routes and for some of topics.
-- KEYS: state queue pool final dead
-- ARGV: now, how many names of parked sets of topics are wanted, then without those of ordering keys ('' = all names)
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
local left, fields = tonumber(ARGV[2]), redis.call('HGETALL', state)
for i = 1, #fields, 2 do
  local wanted, kind = true, left and string.sub(fields[i], 1, 9)
  if kind == 'parked:h:' then
    wanted, left = left > 0, left - 1
  elseif kind == 'parked:k:' then
    wanted = false
  end
  if wanted then
    answer[#answer + 1], answer[#answer + 2] = fields[i], fields[i + 1]
  end
end
return answer
