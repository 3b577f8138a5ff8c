-- Return a slice of a queue's census: a page of its pool, counted by topic, state and due time.
-- KEYS: state queue pool attempts dead.
-- ARGV: now, cursor, how many to look at, when the census began ('' = now), two prefixes.
--   The prefixes are those of the reserved keys that index messages by topic, and by topic and tags.
-- Returns: {now, next cursor ('0' = done), how many were looked at, groups}.
--   A group is {topic, state, bucket, messages, bytes of their records, not indexed by topic, tagged but not indexed by
--   tags}.
--   Bucket 0 has due times up to the beginning of the census, and messages outside the queue.
--   Bucket n has the next 2^(n-1) minutes after the first 2^(n-1) - 1 minutes from then on. Bucket 23 has all later
--   ones.
-- @flags no-writes
-- @include clock record life
local state, queue, pool, attempts, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local began = ARGV[4] == '' and now or tonumber(ARGV[4])
local exposed = tonumber(redis.call('HGET', state, 'watermark') or '') or -1
local page = redis.call('HSCAN', pool, ARGV[2], 'COUNT', ARGV[3])
local found = page[2]

local some_held = {}
local function is_held(topic)
  if some_held[topic] == nil then
    some_held[topic] = redis.call('HEXISTS', state, 'parked:h:' .. topic) == 1
  end
  return some_held[topic]
end

local function state_of(id, topic, due, tried)
  if not due then
    if redis.call('ZSCORE', dead, id) then
      return 'dead'
    end
    return is_held(topic) and 'held' or 'parked' -- of a topic of which some are held it is taken for one of them
  elseif due > now and tried then
    return 'retrying'
  elseif due <= exposed then
    return 'in_flight'
  end
  return due > now and 'scheduled' or 'due'
end

-- Return the logarithm of the minutes since the census began plus 1, rounded up.
local function bucket_of(due)
  if due <= began then
    return 0
  end
  local fraction, exponent = math.frexp((due - began) / 60000 + 1)
  return math.min(fraction == 0.5 and exponent - 1 or exponent, 23)
end

-- Return 1 if a record is not indexed by topic, and 1 if it has tags and is not indexed by them.
local function unindexed(record, topic)
  local flags, _, tags_length = byte(record, FLAGS, TOPIC_LENGTH + 1)
  local untagged = (tags_length or 0) > 0 and 1 or 0
  if #record < FIELDS - 1 or math.floor(flags / 8) % 2 == 0 then
    return 1, untagged -- it has no reserved keys
  end
  local keys = ' ' .. keys_of(record) .. ' '
  local by_topic = string.find(keys, ' ' .. ARGV[5] .. topic .. ' ', 1, true)
  local by_tags = string.find(keys, ' ' .. ARGV[6] .. topic .. ':', 1, true)
  return by_topic and 0 or 1, by_tags and 0 or untagged
end

local groups, named = {}, {}
local function count(record, topic, one, bucket)
  local of_topic = named[topic] or {}
  local of_state = of_topic[one] or {}
  local group = of_state[bucket]
  if not group then
    group = { topic, one, bucket, 0, 0, 0, 0 }
    groups[#groups + 1], named[topic], of_topic[one], of_state[bucket] = group, of_topic, of_state, group
  end
  local by_topic, by_tags = unindexed(record, topic)
  group[4], group[5], group[6], group[7] = group[4] + 1, group[5] + #record, group[6] + by_topic, group[7] + by_tags
end

-- One command reads the values of all messages, because a script pays for each command.
local ids, tickets = {}, {}
for n = 1, #found / 2 do
  ids[n], tickets[n] = found[2 * n - 1], ticket_of(found[2 * n - 1], found[2 * n])
end
local dues = #ids > 0 and redis.call('ZMSCORE', queue, unpack(tickets))
local tries = #ids > 0 and redis.call('EXISTS', attempts) == 1 and redis.call('HMGET', attempts, unpack(ids)) or {}
for n = 1, #ids do
  local id, record, due = ids[n], found[2 * n], tonumber(dues[n] or '')
  local topic = topic_of(record)
  count(record, topic, state_of(id, topic, due, tries[n]), bucket_of(due or 0))
end
return { digits(now), page[1], #ids, groups }
