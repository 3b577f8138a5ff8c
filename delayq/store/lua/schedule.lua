-- Schedule messages of one queue: each into the pool, its ticket into the queue, its keys into the index.
-- KEYS: state queue pool keys final
-- ARGV: now, wake channel, window of final (ms), below this delay an id is remembered (ms);
--       then id, spec, content of each message; spec: 'a' at | 'r' after, in upper case if the caller gave the id, ms
-- Returns: {now, index, status, due, ...} of those only that were not scheduled by this very call (index from 0):
--          'live' (scheduled before by the same call), 'conflict', 'delivered', 'cancelled', 'invalid'
-- @include clock record generation wake final
local state, queue, pool, index, final = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local window, short = tonumber(ARGV[3]), tonumber(ARGV[4])
local count = (#ARGV - 4) / 3
local sub, byte = string.sub, string.byte

local ids = {}
for i = 1, count do
  ids[i] = ARGV[3 * i + 2]
end
local stored = redis.call('HMGET', pool, unpack(ids))
local ended = redis.call('EXISTS', final) == 1 and redis.call('ZMSCORE', final, unpack(ids)) or {}

-- Whether a stored record was made by the same call: its content, and its first asked due unless it is relative.
local function same_call(record, content, relative, asked)
  local moved = byte(record, MARK) % 2 == 1
  if sub(record, FLAGS, moved and -14 or -1) ~= content then
    return false
  end
  return relative or tonumber(moved and sub(record, -13) or sub(record, ASKED, 20)) == asked
end

local answer = { digits(now) }
local function say(i, status, due)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = i - 1, status, due
end

local generation
local records, tickets, members, fresh = {}, {}, {}, {}
local earliest = math.huge
for i = 1, count do
  local id, spec, content = ids[i], ARGV[3 * i + 3], ARGV[3 * i + 4]
  local kind = byte(spec)
  local given = kind < 97
  local relative = kind == 114 or kind == 82
  local asked = tonumber(sub(spec, 2))
  local due = asked and (relative and now + asked or asked)
  local record = stored[i] or fresh[id]
  local how = not record and ending(ended[i], now, window)
  if not due or due ~= due or asked < 0 or due >= 1e13 or asked % 1 ~= 0 then
    say(i, 'invalid', '')
  elseif record then
    say(i, same_call(record, content, relative, asked) and 'live' or 'conflict', sub(record, ASKED, 20))
  elseif how then
    say(i, how == FORWARDED and 'delivered' or 'cancelled', '')
  else
    generation = generation or next_generation(state)
    local moved = due < now
    if moved then
      due = now
    end
    local remembered = given or due - now < short
    local mark = (moved and 1 or 0) + (remembered and 2 or 0)
    record = generation .. string.format('%013.0f', due) .. mark .. content
    if moved then
      record = record .. string.format('%013.0f', asked)
    end
    fresh[id] = record
    local n = #records
    records[n + 1], records[n + 2] = id, record
    tickets[n + 1], tickets[n + 2] = digits(due), id .. '\0' .. generation
    local k1, k2 = byte(content, 6, 7)
    if k1 + k2 > 0 then
      local topic, tags, ordering, options = byte(content, 2, 5)
      local start = 15 + topic + tags + ordering + options
      local keys = sub(content, start, start + k1 * 256 + k2 - 1)
      for key in string.gmatch(keys, '[^ ]+') do
        local m = #members
        members[m + 1], members[m + 2] = '0', key .. '\0' .. id
      end
    end
    if due < earliest then
      earliest = due
    end
  end
end

if #records > 0 then
  redis.call('HSET', pool, unpack(records))
  redis.call('ZADD', queue, unpack(tickets))
  for first = 1, #members, 2000 do
    redis.call('ZADD', index, unpack(members, first, math.min(first + 1999, #members)))
  end
  redis.call('HINCRBY', state, 'scheduled', #records / 2)
  wake(state, ARGV[2], earliest)
end
return answer
