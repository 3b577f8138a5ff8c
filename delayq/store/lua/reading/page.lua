-- Return a page of the messages of a queue or a parked set, or of the dead letters. Messages are sorted by due time,
-- dead letters by burial time, and equal ones by id. The beginning is found in logarithmic time, wherever it is.
-- KEYS: state set pool attempts reasons.
-- ARGV: now, 'dead' or another place, first due time, ticket, end due time, most to look at, most bytes, most to return,
--   then the following.
--   The page begins at the first due time, behind the ticket ('' = the first). For dead letters the ticket is the id.
--   The page ends before the end due time ('' = none).
--   From 9 on: states, beginning of the id, tags, property, value, topic pattern, fields, the caller's patterns.
--   Only messages that match are returned; '' matches any. States of the queue have a comma around each.
--   The fields are '' for the complete record, 'size' for its generation and number of bytes.
--   The topic has to match one of the caller's patterns (none = any).
-- Returns: {now, watermark or '', due time and ticket of the last one, looked at, counted, then five values for each
--   message}.
--   The due time and ticket are '' at the end.
--   Counted are the messages looked at that the caller's patterns cover. A caller with such patterns gets only this
--   number.
--   The five values are: ticket, due time, fields of the record, attempts or '', reason or ''.
-- @flags no-writes
-- @include clock record properties carries glob
local state, set, pool, attempts_key, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local dead = ARGV[2] == 'dead'
local due, after, till = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local most, most_bytes, most_told = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local states, prefix, tags, name, pattern = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[14]
local property = name ~= '' and property_text(name, ARGV[13])
local topic_glob = pattern ~= '' and glob(pattern)
local what, globs = ARGV[15], {}
for i = 16, #ARGV do
  globs[#globs + 1] = glob(ARGV[i])
end
local watermark = redis.call('HGET', state, 'watermark') or ''
local exposed = tonumber(watermark) or -1

-- The states limit the range. A message that is neither due nor in flight has a due time after now. All others are
-- before it, or not after the watermark.
local function among(one)
  return states == '' or string.find(states, ',' .. one .. ',', 1, true) ~= nil
end
if not (among('due') or among('in_flight')) and due <= now then
  due, after = now + 1, ''
elseif not (among('scheduled') or among('retrying')) then
  till = math.min(till or math.huge, math.max(now, exposed) + 1)
end

-- Return whether a text sorts before another or is equal, by bytes: `<` would use the language of the server.
local function not_behind(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then
      return a < b
    end
  end
  return #one <= #other
end

-- Find the rank to begin with. If the ticket is gone, search for its former place among equal due times.
local start = redis.call('ZCOUNT', set, '-inf', '(' .. digits(due))
if after ~= '' then
  local score = redis.call('ZSCORE', set, after)
  if score and tonumber(score) == due then
    start = redis.call('ZRANK', set, after) + 1
  else
    local stop = redis.call('ZCOUNT', set, '-inf', digits(due))
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
while count > 0 and till and tonumber(entries[count * 2]) >= till do
  count = count - 1
  more = false
end

local known, wanted = {}, {}
local function topic_of(record)
  return string.sub(record, FIELDS, FIELDS - 1 + (byte(record, TOPIC_LENGTH) or 0))
end
local function may_know(topic)
  local may = known[topic]
  if may == nil then
    may = #globs == 0
    for _, one in ipairs(globs) do
      may = may or matches(one, topic)
    end
    known[topic] = may
  end
  return may
end

local function has_topic(record)
  local topic = topic_of(record)
  local fits = wanted[topic]
  if fits == nil then
    fits = may_know(topic) and (not topic_glob or matches(topic_glob, topic))
    wanted[topic] = fits
  end
  return fits
end

local function has_tags(record)
  local topic, length = byte(record, TOPIC_LENGTH, TOPIC_LENGTH + 1)
  return length == #tags and string.sub(record, FIELDS + topic, FIELDS - 1 + topic + length) == tags
end

local any_topic = not topic_glob and #globs == 0
local function fits(record)
  return (any_topic or has_topic(record)) and (tags == '' or has_tags(record))
    and (not property or carries(record, property))
end

local function told_of(record)
  return what == 'size' and string.sub(record, 1, GENERATION) .. #record or record
end

local function state_of(score, tried)
  if score > now and tried then
    return 'retrying'
  elseif score <= exposed then
    return 'in_flight'
  end
  return score > now and 'scheduled' or 'due'
end

local answer = { digits(now), watermark, '', '', 0, 0 }
local bytes, last, told, block, theirs = 0, 0, 0, 4, 0
while last < count and bytes <= most_bytes and told < most_told do
  local places, ids = {}, {}
  local stop = math.min(last + block, count)
  for i = last + 1, stop do
    local id = dead and entries[i * 2 - 1] or string.sub(entries[i * 2 - 1], 1, -9)
    if prefix == '' or string.sub(id, 1, #prefix) == prefix then
      places[#places + 1], ids[#ids + 1] = i, id
    end
  end
  local records = #ids > 0 and redis.call('HMGET', pool, unpack(ids)) or ids
  local found, found_ids = {}, {}
  for n, record in ipairs(records) do
    -- The message of a ticket without its record is gone.
    if record and (dead or string.sub(record, 1, GENERATION) == string.sub(entries[places[n] * 2 - 1], -7)) then
      bytes = bytes + #record
      if #globs > 0 and may_know(topic_of(record)) then
        theirs = theirs + 1
      end
      if fits(record) then
        found[#found + 1], found_ids[#found_ids + 1] = n, ids[n]
      end
      if bytes > most_bytes or told + #found == most_told then
        stop = places[n]
        break
      end
    end
  end
  last = stop
  local attempts = #found > 0 and redis.call('HMGET', attempts_key, unpack(found_ids)) or found
  for i, n in ipairs(found) do
    local ticket, score = entries[places[n] * 2 - 1], entries[places[n] * 2]
    if states == '' or among(state_of(tonumber(score), attempts[i])) then
      local at = #answer
      answer[at + 1], answer[at + 2], answer[at + 4] = ticket, score, attempts[i] or ''
      answer[at + 3] = told_of(records[n])
      answer[at + 5] = dead and redis.call('HGET', reasons, found_ids[i]) or ''
      told = told + 1
    end
  end
  block = math.min(200, 16 * block)
  if bytes > 0 then -- as many next time as the bytes allow
    block = math.max(1, math.min(block, math.floor(most_bytes * last / bytes)))
  end
end
if more or last < count then
  answer[3], answer[4] = entries[last * 2], entries[last * 2 - 1]
end
answer[5], answer[6] = last, #globs > 0 and theirs or last
return answer
