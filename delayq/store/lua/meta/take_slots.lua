-- Return slots, and take others. There are never more slots taken than the limit, whoever asks. A slot that is not
-- returned becomes free when its time is over, by this server's clock.
-- KEYS: the slots.
-- ARGV: now, limit, how long slots are taken (ms), how many are wanted, the name of this call, the slots to return.
--   The name ends in ':' and the ms for which the slots are taken.
-- Returns: how many are taken. Their names are that of the call, ':', and 1, 2, ...
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
-- A clock may have been set back. Even then no slot stays taken for longer than the call asked.
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
