-- Return slots of some limits, and take others. There are never more slots of a limit taken than it allows, whoever asks.
-- A slot that is not returned becomes free when its time is over, by this server's clock.
-- KEYS: the slots of each limit.
-- ARGV: now, then for each limit a text of words.
--   The words are: the limit, how long slots are taken (ms), how many are wanted, the name of this call, the slots to return.
--   The name ends in ':' and the ms for which the slots are taken.
-- Returns: for each limit, how many are taken. Their names are that of the call, ':', and 1, 2, ...
-- @flags allow-oom
-- @include clock
local now = clock(ARGV[1])

-- Remove the slots whose time is over. A clock may have been set back. Even then no slot stays taken for longer than its
-- call asked.
local function end_slots(slots, life)
  local over = redis.call('ZRANGE', slots, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if #over > 0 then
    redis.call('ZREM', slots, unpack(over))
  end
  for _, slot in ipairs(redis.call('ZRANGE', slots, '(' .. digits(now + life), '+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
    local latest = now + tonumber(string.match(slot, ':(%d+):%d+$'))
    if tonumber(redis.call('ZSCORE', slots, slot)) > latest then
      redis.call('ZADD', slots, digits(latest), slot)
    end
  end
end

local answer = {}
for place, slots in ipairs(KEYS) do
  local words = {}
  for word in string.gmatch(ARGV[place + 1], '%S+') do
    words[#words + 1] = word
  end
  local life, wanted, name = tonumber(words[2]), tonumber(words[3]), words[4]
  if #words > 4 then
    redis.call('ZREM', slots, unpack(words, 5))
  end
  local names, new, used, there, taken = {}, {}, redis.call('ZCARD', slots), {}, 0
  for i = 1, wanted do
    names[i] = name .. ':' .. digits(i)
  end
  if used > 0 then
    end_slots(slots, life)
    used = redis.call('ZCARD', slots)
    there = wanted > 0 and redis.call('ZMSCORE', slots, unpack(names)) or {}
  end
  local last, free = digits(now + life), tonumber(words[1]) - used
  while taken < wanted and (there[taken + 1] or free > 0) do
    taken = taken + 1
    if not there[taken] then -- else this call is repeated
      new[#new + 1], new[#new + 2], free = last, names[taken], free - 1
    end
  end
  if #new > 0 then
    redis.call('ZADD', slots, unpack(new))
  end
  if used > 0 then
    last = redis.call('ZRANGE', slots, -1, -1, 'WITHSCORES')[2]
  end
  if last and used + #new > 0 then
    redis.call('PEXPIRE', slots, digits(last - now))
  end
  answer[place] = taken
end
return answer
