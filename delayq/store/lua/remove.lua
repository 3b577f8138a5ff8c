-- Remove the messages that were appended before it in the same transaction; those whose stream took nothing stay.
-- KEYS: state queue pool attempts keys final guard, then the streams
-- ARGV: now, window of final, most in final, the first and the last ticket, '1' if any message of the queue has attempts;
--       then of each stream: how many messages, how many members of the index of keys, how many ids to remember, the due
--       of its last message; then all ids, all members, all ids to remember, each in the order of the streams
-- Returns: {how many were removed, how many streams took nothing}
-- @flags allow-oom
-- @include clock final
local state, queue, pool, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, guard = KEYS[5], KEYS[6], KEYS[7]
local streams, wrong = #KEYS - 7, 0
local ids, members, ends = {}, {}, {} -- of each stream: where they begin; behind the last one, where they end

local function places(places_of, field, start)
  places_of[1] = start
  for s = 1, streams do
    places_of[s + 1] = places_of[s] + tonumber(ARGV[2 + 4 * s + field])
  end
  return places_of[streams + 1]
end
places(ends, 3, places(members, 2, places(ids, 1, 7 + 4 * streams)))

-- An error in a transaction stops nothing behind it. So a stream has to show that it took the last message, and with
-- that all before it: a key of another type never does, nor does a stream that is full.
local took = {}
for s = 1, streams do
  local last = redis.pcall('XREVRANGE', KEYS[7 + s], '+', '-', 'COUNT', '1')
  local entry = not last.err and last[1] and last[1][2]
  took[s] = entry and entry[2] == ARGV[ids[s + 1] - 1] and entry[12] == ARGV[6 + 4 * s]
  if not took[s] then
    wrong = wrong + 1
  end
end

local function remove(from, behind)
  redis.call('HDEL', pool, unpack(ARGV, ids[from], ids[behind] - 1))
  if ARGV[6] == '1' then
    redis.call('HDEL', attempts, unpack(ARGV, ids[from], ids[behind] - 1))
  end
  for first = members[from], members[behind] - 1, 2000 do
    redis.call('ZREM', index, unpack(ARGV, first, math.min(first + 1999, members[behind] - 1)))
  end
  if ends[behind] > ends[from] then
    local now, entries = clock(ARGV[1]), {}
    for i = ends[from], ends[behind] - 1 do
      entries[#entries + 1] = digits(now * 4 + FORWARDED)
      entries[#entries + 1] = ARGV[i]
    end
    redis.call('ZADD', final, unpack(entries))
    forget_old(final, now, tonumber(ARGV[2]), tonumber(ARGV[3]))
  end
  return ids[behind] - ids[from]
end

local count = ids[streams + 1] - ids[1]
local first, last = redis.call('ZRANK', queue, ARGV[4]), redis.call('ZRANK', queue, ARGV[5])
local removed = 0
if wrong == 0 and first and last and last - first == count - 1 then
  redis.call('ZREMRANGEBYRANK', queue, first, last)
  removed = remove(1, streams + 1)
else
  -- Others stand between them: scheduled meanwhile, or of a stream that took nothing.
  local gone, tickets = {}, {}
  for s = 1, streams do
    if took[s] then
      removed = removed + remove(s, s + 1)
      for i = ids[s], ids[s + 1] - 1 do
        gone[ARGV[i]] = true
      end
    end
  end
  for _, ticket in ipairs(first and last and redis.call('ZRANGE', queue, first, last) or {}) do
    if gone[string.sub(ticket, 1, -9)] then
      tickets[#tickets + 1] = ticket
    end
  end
  if #tickets > 0 then
    redis.call('ZREM', queue, unpack(tickets))
  end
end
if removed > 0 then
  redis.call('HINCRBY', state, 'forwarded', removed)
  redis.call('HINCRBY', guard, 'changes', 1)
end
return { removed, wrong }
