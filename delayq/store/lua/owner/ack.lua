-- Forget delivered messages, if each has the generation (in its ticket) and the due time with which it was pulled. A
-- Redis server that lost changes gives a generation twice, so the ticket alone may be that of another message with the
-- same id. An older epoch may ack, too: a late but true ack is better than a duplicate.
-- KEYS: state queue pool attempts keys final ended moves.
-- ARGV: epoch, now, window of final, most in final, count, tickets, due times as pulled, digests, keyed count, keyed
--   ids, members.
--   A digest is that of the content if the id is remembered (see include/content), else ''.
--   The keyed count is the number of messages with business keys. For each follow its id and what `ended` has of it (see
--   include/index).
--   The members are those of the index to remove.
-- Returns: {'ok' or 'fenced', how many were removed}.
-- @flags allow-oom
-- @empties
-- @first EXISTS HGET TIME ZCOUNT ZMSCORE ZREM
-- @include clock record unreserved index final forget fence
local state, queue, pool, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, ended_keys, moves = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local count, sub = tonumber(ARGV[5]), string.sub
local old = fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1])
local stored = redis.call('ZMSCORE', queue, unpack(ARGV, 6, 5 + count))
local tickets, ids, n, m = {}, {}, 0, 0
local ends, remembered, by_both, plain_end, next_plain = {}, {}, nil, nil, nil
for i = 1, count do
  local due, pulled = stored[i], ARGV[5 + count + i]
  if due and (due == pulled or tonumber(due) == tonumber(pulled)) then
    n = n + 1
    local ticket = ARGV[5 + i]
    tickets[n], ids[n] = ticket, sub(ticket, 1, -9)
    local digest = ARGV[5 + 2 * count + i]
    if digest ~= '' then
      if not by_both then
        by_both = earlier(state, clock(ARGV[2]))
        plain_end, next_plain = plain_ends(by_both)
      end
      if digest == '0' then
        ends[m + 1], plain_end = plain_end, plain_end + next_plain
      else
        ends[m + 1] = ended(by_both, FORWARDED, tonumber(digest))
      end
      ends[m + 2] = ids[n]
      remembered[n] = true
      m = m + 2
    end
  end
end
local called = {} -- ids with named calls, and what `ended` has of them: their callers may repeat these calls
if n > 0 and redis.call('EXISTS', moves) == 1 then
  local calls = redis.call('HMGET', moves, unpack(ids))
  for i = 1, n do
    local record = calls[i] and redis.call('HGET', pool, ids[i])
    if record then
      local topic = sub(record, FIELDS, FIELDS - 1 + byte(record, TOPIC_LENGTH))
      called[#called + 1], called[#called + 2] = ids[i], end_of(unreserved(keys_of(record)), topic, '')
      if not remembered[i] then
        by_both = by_both or earlier(state, clock(ARGV[2]))
        ends[m + 1], ends[m + 2] = ended(by_both, FORWARDED), ids[i]
        m = m + 2
      end
    end
  end
end
if n > 0 then
  local keyed = 7 + 3 * count
  local reserved = keyed + 2 * ARGV[keyed - 1]
  if reserved > keyed or #called > 0 then
    -- @guard HSET
  end
  if m > 0 then
    -- @guard HMGET ZADD ZCARD ZRANGE
  end
  local any_attempts = redis.call('EXISTS', attempts) == 1
  redis.call('ZREM', queue, unpack(tickets))
  redis.call('HDEL', pool, unpack(ids))
  if any_attempts then
    redis.call('HDEL', attempts, unpack(ids))
  end
  if n == count then -- as it mostly is: then all stands here as it is handed on
    if reserved > keyed then
      redis.call('HSET', ended_keys, unpack(ARGV, keyed, reserved - 1))
    end
    for first = reserved, #ARGV, 2000 do
      redis.call('ZREM', index, unpack(ARGV, first, math.min(first + 1999, #ARGV)))
    end
  else
    local removed = {}
    for _, id in ipairs(ids) do
      removed[id] = true
    end
    for i = keyed, reserved - 1, 2 do
      if removed[ARGV[i]] then
        redis.call('HSET', ended_keys, ARGV[i], ARGV[i + 1])
      end
    end
    for i = reserved, #ARGV do
      if removed[string.match(ARGV[i], '[^%z]+$')] then
        redis.call('ZREM', index, ARGV[i])
      end
    end
  end
  if #called > 0 then
    redis.call('HSET', ended_keys, unpack(called))
  end
  if m > 0 then
    redis.call('ZADD', final, unpack(ends))
    forget_over(final, index, ended_keys, moves, tonumber(ARGV[4]))
  end
  redis.call('HINCRBY', state, 'forwarded', n)
end
return { old and 'fenced' or 'ok', n }
