-- Give slots back, and take others: no more than there are is taken at any time, whoever asks. One that is not given back
-- is free again when its time is over, by the clock of this server.
-- KEYS: the slots
-- ARGV: now, how many there are, for how many ms they are taken, how many are wanted, the name of this call, which ends in
--   these ms; slots that are given back
-- Returns: how many are taken: their names are that of the call, ':', and 1, 2, ...
-- @flags allow-oom
-- @include clock
local slots, most, life, wanted, name = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local now = clock(ARGV[1])
if #ARGV > 5 then
  redis.call('ZREM', slots, unpack(ARGV, 6))
end
local over = redis.call('ZRANGE', slots, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, 1000)
if #over > 0 then
  redis.call('ZREM', slots, unpack(over))
end
-- After a clock that was set back none is taken for longer than it was asked for.
for _, slot in ipairs(redis.call('ZRANGE', slots, '(' .. digits(now + life), '+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
  local latest = now + tonumber(string.match(slot, ':(%d+):%d+$'))
  if tonumber(redis.call('ZSCORE', slots, slot)) > latest then
    redis.call('ZADD', slots, digits(latest), slot)
  end
end
local taken, free = 0, most - redis.call('ZCARD', slots)
while taken < wanted do
  local slot = name .. ':' .. digits(taken + 1)
  if not redis.call('ZSCORE', slots, slot) then -- else this call is repeated
    if free <= 0 then
      break
    end
    redis.call('ZADD', slots, digits(now + life), slot)
    free = free - 1
  end
  taken = taken + 1
end
local last = redis.call('ZRANGE', slots, -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIRE', slots, digits(last - now))
end
return taken
