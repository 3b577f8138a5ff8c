-- Schedule messages of one queue: each into the pool, its ticket into the queue, its keys into the index.
-- KEYS: state queue pool keys final dead
-- ARGV: now, wake channel, window of final (ms), below this delay an id is remembered (ms), kinds: a letter for each
--       message ('a' at, 'p' at, but not once that has passed, 'r' after; in upper case if the caller gave the id),
--       then all ids, then all bodies:
--       the due or delay (13 digits), '0', content; the deadline (see include/deadline)
-- Returns: {now, index, status, due, ...} of those only that were not scheduled by this very call (index from 0):
--          'live' or 'dead' (scheduled before by the same call), 'delivered' (so was this, and it has ended),
--          'conflict' (by another call; without a due if that one's was delivered), 'cancelled', 'removed_in_flight' or
--          'discarded' (it has ended so), 'invalid', 'past', 'moved' (the queue is closed: ask the next layout)
-- @promise
-- @include clock deadline record content generation wake final
local state, queue, pool, index, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = clock(ARGV[1])
local window, short = tonumber(ARGV[3]), tonumber(ARGV[4])
local kinds = ARGV[5]
local count = #kinds
local sub, byte, find = string.sub, string.byte, string.find

local closed = redis.call('HGET', state, 'closed')
local stored = redis.call('HMGET', pool, unpack(ARGV, 6, 5 + count))
local ends = redis.call('EXISTS', final) == 1 and redis.call('ZMSCORE', final, unpack(ARGV, 6, 5 + count))

-- Whether a stored record was made by the same call: its content, and its first asked due unless it is relative.
local function same_call(record, content, relative, asked)
  if not fields(record) then
    return false -- it is damaged
  end
  local before, first_asked = first_call(record)
  if before ~= content and untraced(before) ~= untraced(content) then
    return false
  end
  return relative or tonumber(first_asked) == asked
end

local by_both = ends and earlier(state, now)
local answer = { digits(now) }
local function say(i, status, due)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = i - 1, status, due
end

local generation, behind_id -- made with the first new message: a repeated call changes nothing
local records, tickets, members, fresh = {}, {}, {}, {}
local earliest, soon = math.huge, now + short

-- What is neither new, absolute, of an id made here, nor far enough ahead: the body and score to store, or nil.
local function weigh(i, id, body, kind)
  local given = kind < 97
  local relative = kind == 114 or kind == 82
  local asked = find(body, '^%d%d%d%d%d%d%d%d%d%d%d%d%d') and tonumber(sub(body, 1, 13))
  local due = asked and (relative and now + asked or asked)
  if not due or due >= 1e13 then
    return say(i, 'invalid', '')
  end
  local record = stored[i] or fresh[id]
  if record then
    local status = 'conflict'
    if same_call(record, sub(body, 15), relative, asked) then
      status = redis.call('ZSCORE', dead, id) and 'dead' or 'live'
    end
    return say(i, status, sub(record, ASKED, 20))
  end
  local how, _, digest = ending(ends and ends[i], by_both, window)
  if how == FORWARDED and digest ~= digest_of(sub(body, 15), sub(body, 1, 13)) then
    return say(i, 'conflict', '')
  elseif how then
    return say(i, ENDS[how], '')
  end
  if closed then
    return say(i, 'moved', '')
  end
  if due < now and (kind == 112 or kind == 80) then
    return say(i, 'past', '')
  end
  generation = generation or next_generation(state)
  local moved = due < now
  if moved then
    due = now
  end
  local mark = (moved and 1 or 0) + ((given or due < soon) and 2 or 0)
  body = string.format('%013.0f', due) .. mark .. sub(body, 15)
  if moved then
    body = body .. string.format('%013.0f', asked)
  end
  fresh[id] = generation .. body
  return body, due
end

local n, m = 0, 0
local outlived = {} -- ids that ended before the window: forgetting them later must not take the new message's member
for i = 1, count do
  local id, body = ARGV[5 + i], ARGV[5 + count + i]
  local kind = byte(kinds, i)
  local due = tonumber(sub(body, 1, 13))
  if closed or kind ~= 97 or not due or due < soon or due >= 1e13 or stored[i] or (ends and ends[i]) then
    body, due = weigh(i, id, body, kind)
  end
  if body then
    if not behind_id then
      generation = generation or next_generation(state)
      behind_id = '\0' .. generation
    end
    records[n + 1], records[n + 2] = id, generation .. body
    tickets[n + 1], tickets[n + 2] = sub(body, 1, 13), id .. behind_id
    n = n + 2
    local topic, tags, ordering, options, k1, k2 = byte(body, 16, 21)
    if ordering > 0 and kind < 97 then
      members[m + 1], members[m + 2] = '0', asked_member(id)
      m = m + 2
      if ends and ends[i] then
        outlived[#outlived + 1] = id
      end
    end
    if k1 + k2 > 0 then
      local start = 29 + topic + tags + ordering + options
      local keys = sub(body, start, start + k1 * 256 + k2 - 1)
      if find(keys, ' ', 1, true) then
        for key in string.gmatch(keys, '[^ ]+') do
          members[m + 1], members[m + 2] = '0', key .. '\0' .. id
          m = m + 2
        end
      else
        members[m + 1], members[m + 2] = '0', keys .. '\0' .. id
        m = m + 2
      end
    end
    if due < earliest then
      earliest = due
    end
  end
end

if n > 0 then
  redis.call('HSET', pool, unpack(records))
  redis.call('ZADD', queue, unpack(tickets))
  for first = 1, m, 2000 do
    redis.call('ZADD', index, unpack(members, first, math.min(first + 1999, m)))
  end
  if #outlived > 0 then
    redis.call('ZREM', final, unpack(outlived))
  end
  redis.call('HINCRBY', state, 'scheduled', n / 2)
  wake(state, ARGV[2], earliest)
end
return answer
