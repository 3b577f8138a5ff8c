-- Take due messages of one queue, from the offset on. If the topic of a message is a stream in this Redis, the message
-- is appended to it and removed here, exactly once. Other messages are returned and stay in the queue until they are
-- settled. A message moves into the set of its topic in three cases. The topic is paused, its set is not empty, or the
-- limit of its stream has no permit. A message stays if a caller forced its delivery, or if the owner has it in memory.
-- KEYS: state queue pool attempts keys final dead reasons ended moves, then the streams, then the buckets.
-- ARGV: epoch, now, node's now (ms, or ''), offset due time, offset ticket, most to return, most to look at, most bytes,
--   fresh, then the following.
--   '1' as fresh: messages with an ordering key stay.
--   From 10 on: unlisted topics ('general' or 'unknown'), window of final, most in final, traces, names, version.
--   Traces are wanted with '1'. Names of parked sets are wanted with '1' (except those of topics) or '2' (all).
--   The version is that of the policies that the owner uses.
--   From 16 on: number of known topics, number of topics without permits, known topics, topics without permits, tickets
--   in memory.
--   A known topic has three values: topic, stream and MAXLEN ('' = none).
--   The stream is its place behind the 10 keys, or '' for general.
--   '=PLACE RATE BURST' behind MAXLEN means that the pull spends from the bucket of its rate.
--   The tickets in memory are those of the owner behind the offset.
-- Returns: {'fenced', epoch}, {'policies', the queue's version} or {'ok', then these values}.
--   'policies' means that the queue has another version, and nothing was done.
--   First: now, µs, next due time or '', '1' if more are due or '0', rank of the first entry, last due time and ticket.
--   Messages: how many were appended, then tickets, due times, attempts and records of those returned.
--   Topics: unknown topics, then topic and error of each stream that accepts nothing. Their messages are returned.
--   Traces: id, topic, attempt and traceparent of each appended message that has one. Then parked sets, if wanted.
--   Counters before this pull: `scheduled`, `forwarded`, `cancelled`.
--   Last: how far Redis's clock is ahead of now (ms), and the sets of topics that grew and are not paused.
--   A set has its name, the due time and ticket of its earliest message, and its number of tickets.
-- @flags allow-oom
-- @empties
-- @first EXISTS HMGET TIME ZRANGE
-- @include clock record properties content sound index final forget fence bucket
local state, queue, pool, attempts_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, dead, reasons, ended_keys, moves = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local known = redis.call('HMGET', state, 'epoch', 'watermark', 'sleep_until', 'scheduled', 'forwarded', 'cancelled',
  'ahead', 'policies', 'paused', 'held')
if fenced(state, known[1], ARGV[1]) then
  return { 'fenced', known[1] }
end
if (known[8] or '') ~= ARGV[15] then
  return { 'policies', known[8] or '' }
end
local now, micro = clock(ARGV[2])
local here_micro = now * 1000 + micro
local here, ahead, watermark = now, 0, tonumber(known[2] or '') or -1
if ARGV[3] ~= '' and tonumber(ARGV[3]) < now then
  ahead = now - tonumber(ARGV[3])
  now, micro = tonumber(ARGV[3]), 0 -- the earlier of the two clocks: one that jumps ahead fires nothing early
end
-- Expiry uses the present time of Redis, minus its known lead over the node's clock. The node's time is from before
-- this pull, which may have waited in a stalled server. If the lead has changed, the clock may have jumped instead.
-- Then the next pull decides.
local known_ahead = tonumber(known[7] or '') or 0
local expiry_now, in_doubt = math.max(now, here - known_ahead), ahead - known_ahead >= 1000
local paused, some_held, all_held, source = known[9] or nil, known[10] == '1', false, queue
local offset, room, look, most_bytes = ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local fresh, unlisted = ARGV[9] == '1', ARGV[10]
local window, most_final, traced = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13] == '1'

-- Return the rank to start from. It is behind the last ticket, if that is still in the queue. Otherwise it is the first
-- rank at the offset.
local function start_rank()
  local score = ARGV[5] ~= '' and redis.call('ZSCORE', queue, ARGV[5])
  if score and tonumber(score) == tonumber(offset) then
    return redis.call('ZRANK', queue, ARGV[5]) + 1
  end
  return redis.call('ZCOUNT', queue, '-inf', '(' .. offset)
end

-- Read the due messages from there on, at most as many as will be looked at. If no more are due, also find the due time
-- of the next message. Mostly few messages are due, and one call reads them all.
local FEW, due_by, now_text = 4, now, digits(now)
local start = start_rank()
local entries, due_count, more, next_due, due_of = {}, 0, false, '', {}
local page = redis.call('ZRANGE', queue, start, start + FEW - 1, 'WITHSCORES')
if #page < 2 * FEW or tonumber(page[2 * FEW]) > due_by then
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > due_by then
      next_due = page[i + 1]
      break
    end
    more = due_count == look
    if more then
      break
    end
    due_count = due_count + 1
    entries[due_count], due_of[page[i]] = page[i], page[i + 1]
  end
else
  due_count = redis.call('ZCOUNT', queue, '-inf', digits(due_by)) - start
  more = due_count > look
  due_count = math.min(due_count, look)
  entries = redis.call('ZRANGE', queue, start, start + due_count - 1)
  next_due = not more and redis.call('ZRANGE', queue, start + due_count, start + due_count, 'WITHSCORES')[2] or ''
end
local ids = {}
for i = 1, due_count do
  ids[i] = sub(entries[i], 1, -9)
end

local named_at, n_known, n_without, streams_behind = 18, tonumber(ARGV[16]), tonumber(ARGV[17]), 10
local in_memory
if due_count == 0 then
  n_known, n_without = 0, 0
end
-- @include named_topics
for i = named_end, named_end + n_without - 1 do
  bounds[ARGV[i]] = NO_PERMITS
end
named_end = named_end + n_without
local buckets = {}
if n_known > 0 and #KEYS > 10 + n_streams then
  -- @guard MGET SET
  -- Return the permits of the bucket for a topic's rate.
  spends = function(topic)
    local place, rate, burst = match(trims[topic] or '', '=(%d+) (%S+) (%S+)$')
    local bound = place and buckets[place]
    if place and not bound then
      local bucket = read_bucket(KEYS[10 + place], tonumber(rate), tonumber(burst), ARGV[15], here_micro)
      bound = { bucket = bucket, most = bucket and bucket.has or 0 }
      buckets[place] = bound
    end
    bounds[topic] = bound or false
    return bound
  end
end
if due_count > 0 and named_end <= #ARGV then
  in_memory = {}
  for i = named_end, #ARGV do
    in_memory[ARGV[i]] = true
  end
end
local FAR, PAGE = 60000, 2000 -- what is far ahead (ms), and how many are looked at then
if due_count > FEW then
  -- @guard ZMSCORE
end
if watermark - now > FAR then
  -- @guard HGET HSETNX ZRANK
end
if ARGV[14] ~= '0' then
  -- @guard HDEL HSCAN
end
local gated, is_paused, is_held, unreachable = paused ~= nil or some_held or n_without > 0 or spends, nil, nil, nil
if due_count > 0 and gated then
  -- @include held
  -- @guard HEXISTS HSET HSETNX ZADD ZCARD ZMSCORE ZREM ZREMRANGEBYRANK ZSCORE
end
-- @include look
if unknown[1] then
  -- Also name the unknown topics near behind it, so that one more pull knows them all.
  local seen = { [unknown[1]] = true }
  for at = looked - chunk + 1, #records do
    local record = records[at]
    local topic_end = record and fields(record)
    local topic = topic_end and sub(record, FIELDS, topic_end)
    if topic and streams[topic] == nil and not seen[topic] and is_topic(topic) and not (gated and is_held(topic)) then
      seen[topic] = true
      unknown[#unknown + 1] = topic
    end
  end
end
more = more or looked < due_count
local last_ticket = looked > 0 and entries[looked] or ''
local last_score = looked > 0 and (due_of[last_ticket] or redis.call('ZSCORE', queue, last_ticket)) or ''
local scores = {}
if #tickets > FEW then
  scores = redis.call('ZMSCORE', queue, unpack(tickets))
else
  for i, ticket in ipairs(tickets) do
    scores[i] = due_of[ticket] or redis.call('ZSCORE', queue, ticket)
  end
end

-- @include set_aside
if kept == 0 and looked > 0 then
  redis.call('ZREMRANGEBYRANK', queue, start, start + looked - 1)
elseif kept < looked then
  local gone = {}
  for i = 1, looked do
    if not stays[i] then
      gone[#gone + 1] = entries[i]
    end
  end
  redis.call('ZREM', queue, unpack(gone))
end
if orphans > 0 then
  redis.call('HINCRBY', state, 'orphans', orphans)
end
-- @include leave
local changed = {}
local function set(field, value)
  local n = #changed
  changed[n + 1], changed[n + 2] = field, value
end
if appended > 0 then
  set('forwarded', (tonumber(known[5] or '') or 0) + appended)
end
if math.abs(ahead - known_ahead) >= 1000 then
  set('ahead', ahead < 1000 and '0' or digits(ahead))
end
if looked > 0 and tonumber(last_score) > watermark then
  set('watermark', last_score)
elseif watermark - now > FAR and not fresh then
  -- @include lower_watermark
end
if not more and not fresh then
  local sleep_until = next_due == '' and 'none' or next_due
  if sleep_until ~= known[3] then
    set('sleep_until', sleep_until)
  end
end
if #changed > 0 then
  redis.call('HSET', state, unpack(changed))
end
local parked = {}
if ARGV[14] ~= '0' then
  -- Redis compares the names. With thousands of held topics, a table of all names in Lua takes ten times as long.
  local function names(match, most)
    local found, cursor = {}, '0'
    repeat
      local page = redis.call('HSCAN', state, cursor, 'MATCH', match, 'COUNT', 1000)
      for i = 1, #page[2], 2 do
        found[#found + 1] = sub(page[2][i], 8)
      end
      cursor = page[1]
    until cursor == '0' or #found >= most
    return found
  end
  parked = names(ARGV[14] == '2' and 'parked:*' or 'parked:[tk]:*', math.huge)
  if some_held and #names('parked:h:*', 1) == 0 then
    redis.call('HDEL', state, 'held')
  end
end
for _, bound in pairs(buckets) do
  if bound.bucket then
    spend_from(bound.bucket, bound.bucket.has - bound.most)
  end
end
-- @include forget_ended
return {
  'ok', now_text, micro, next_due, more and '1' or '0', start,
  last_score, last_ticket,
  appended, tickets, scores, tried, returned, unknown, refused, traces, parked,
  { known[4] or '0', known[5] or '0', known[6] or '0' }, ahead, held_now,
}
