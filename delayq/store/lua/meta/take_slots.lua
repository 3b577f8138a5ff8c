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
local names, new, free = {}, {}, most - redis.call('ZCARD', slots)
for i = 1, wanted do
  names[i] = name .. ':' .. digits(i)
end
local there, taken = wanted > 0 and redis.call('ZMSCORE', slots, unpack(names)) or {}, 0
while taken < wanted and (there[taken + 1] or free > 0) do
  taken = taken + 1
  if not there[taken] then -- else this call is repeated
    new[#new + 1], new[#new + 2], free = digits(now + life), names[taken], free - 1
  end
end
if #new > 0 then
  redis.call('ZADD', slots, unpack(new))
end
local last = redis.call('ZRANGE', slots, -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIRE', slots, digits(last - now))
end
return taken
