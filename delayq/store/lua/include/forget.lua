-- Forget how ids ended. This also removes the business keys of each id and the index members that lead from them to it.
-- It removes the member for the id that the caller gave, and the named calls of the id, too.
local function forget_ids(final, index, ended_keys, moves, ids)
  local keys = redis.call('EXISTS', ended_keys) == 1 and redis.call('HMGET', ended_keys, unpack(ids)) or {}
  local members, keyed = {}, {}
  for i, id in ipairs(ids) do
    if string.find(id, '.%.%x%x%x%x$') then
      members[#members + 1] = asked_member(id)
    end
    if keys[i] then
      add_key_members(members, string.match(keys[i], '^[^\1]*'), id)
      keyed[#keyed + 1] = id
    end
  end
  for first = 1, #members, 2000 do
    redis.call('ZREM', index, unpack(members, first, math.min(first + 1999, #members)))
  end
  if #keyed > 0 then
    redis.call('HDEL', ended_keys, unpack(keyed))
  end
  if redis.call('EXISTS', moves) == 1 then
    redis.call('HDEL', moves, unpack(ids))
  end
  redis.call('ZREM', final, unpack(ids))
end

-- Forget the oldest `count` entries of `final`, at most 2,000 at a time.
local function forget(final, index, ended_keys, moves, count)
  if count > 0 then
    forget_ids(final, index, ended_keys, moves, redis.call('ZRANGE', final, 0, math.min(count, 2000) - 1))
  end
end

local function forget_over(final, index, ended_keys, moves, most)
  forget(final, index, ended_keys, moves, redis.call('ZCARD', final) - most)
end

-- Return how many entries of `final` are too old or too many. `now` is the earlier of two clocks. `most` is infinite if
-- this call added no entry.
local function too_many(final, now, window, most)
  local old = redis.call('ZCOUNT', final, '-inf', '(' .. ended(now - window, FORWARDED))
  return most == math.huge and old or math.max(old, redis.call('ZCARD', final) - most)
end
