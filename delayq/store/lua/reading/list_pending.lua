-- A page of the messages of one queue, or of those parked under one name: by due, equal dues by id. Finding where it
-- begins takes the logarithm of the length, wherever that is.
-- KEYS: state set pool attempts
-- ARGV: now, due to begin with, ticket behind which to begin at that due ('' = the first), due to end before ('' = none),
--       topic ('' = all), most to look at, most bytes
-- Returns: {now, watermark or '', due and ticket of the last one looked at ('' '' = this is the end),
--          ticket, score, record, attempts or '' of each}
-- @flags no-writes
-- @include clock record
local state, set, pool, attempts_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = clock(ARGV[1])
local due, after, till, topic = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local most, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

-- Whether a text comes before another or is the same, by bytes: `<` would go by the language of the server.
local function not_behind(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then
      return a < b
    end
  end
  return #one <= #other
end

-- The rank to begin with. The ticket may be gone: then it is looked for where it stood, among its equals.
local start = redis.call('ZCOUNT', set, '-inf', '(' .. due)
if after ~= '' then
  local score = redis.call('ZSCORE', set, after)
  if score and tonumber(score) == tonumber(due) then
    start = redis.call('ZRANK', set, after) + 1
  else
    local stop = redis.call('ZCOUNT', set, '-inf', due)
    while start < stop do
      local middle = math.floor((start + stop) / 2)
      if not_behind(redis.call('ZRANGE', set, middle, middle)[1], after) then
        start = middle + 1
      else
        stop = middle
      end
    end
  end
end

local entries = redis.call('ZRANGE', set, start, start + most - 1, 'WITHSCORES')
local count = #entries / 2
local more = count == most
while count > 0 and till ~= '' and tonumber(entries[count * 2]) >= tonumber(till) do
  count = count - 1
  more = false
end
local answer = { digits(now), redis.call('HGET', state, 'watermark') or '', '', '' }
local bytes, last = 0, 0
for first = 1, count, 100 do
  if bytes > most_bytes then
    more = true
    break
  end
  local stop = math.min(first + 99, count)
  local ids = {}
  for i = first, stop do
    ids[#ids + 1] = string.sub(entries[i * 2 - 1], 1, -9)
  end
  local records = redis.call('HMGET', pool, unpack(ids))
  local attempts = redis.call('HMGET', attempts_key, unpack(ids))
  for i = first, stop do
    local ticket, record = entries[i * 2 - 1], records[i - first + 1]
    -- A ticket without its record is one of a message that is gone.
    if record and string.sub(record, 1, GENERATION) == string.sub(ticket, -7) then
      local length = byte(record, TOPIC_LENGTH) or 0
      if topic == '' or string.sub(record, FIELDS, FIELDS - 1 + length) == topic then
        local n = #answer
        answer[n + 1], answer[n + 2], answer[n + 3] = ticket, entries[i * 2], record
        answer[n + 4] = attempts[i - first + 1] or ''
        bytes = bytes + #record
      end
    end
  end
  last = stop
end
if more then
  answer[3], answer[4] = entries[last * 2], entries[last * 2 - 1]
end
return answer
