-- Take messages out of the sets of some topics, or out of one other parked set, the earliest of each set first. If the
-- topic of a message is a stream in this Redis, the message is appended to it and removed here, exactly once. Other
-- messages go back into the queue and are returned: their owner has them in flight. The script takes no message of a
-- paused topic, none that is not due, and none that the owner's pulls have not reached. A message from another set
-- moves into the set of its topic if a pull would move it there. An owner that misses the reply finds the messages at
-- the head of the queue.
-- KEYS: state queue pool attempts keys final dead reasons ended moves, the set of each topic or the other set, then the
--   streams.
-- ARGV: epoch, now, node's now (ms, or ''), the owner's policy version, due time and ticket that its pulls have reached,
--   then the following.
--   The due time and ticket are '' if the pulls have reached every due message.
--   From 7 on: most bytes, window of final, most in final, '1' for traces, number of named topics.
--   From 12 on: the topics as in pull, then for each topic how many to take at most.
--   That is 'N', or for a stream with a limit the permits 'N@TIME N@TIME ...', each valid until its time.
--   If no topic is named, these are for another set: its name, how many to take at most, and where to begin.
--   'all' in place of the number moves everything into the sets of the topics. The beginning is 0 (the earliest) to 1.
-- Returns: {'fenced', epoch}, {'policies', the queue's version} or {'ok', then these values}.
--   'policies' means that the queue has another version, and nothing was done.
--   Messages: now, how many were appended, then tickets, due times, attempts and records of those returned.
--   Streams: topic and error of each that accepts nothing; id, topic, attempt and traceparent of each appended message
--   that has one.
--   Permits: each topic with permits, and how many more of it might have been appended.
--   Sets: each changed set, except those of paused topics. It has its name, due time and ticket of the earliest
--   message, and number of tickets.
--   The due time and ticket are '' if a set is empty.
--   Last, for another set: the due time of the earliest dropped ticket ('' = none). Its message is gone or has another
--   ticket.
-- @flags allow-oom
-- @empties
-- @first EXISTS HMGET TIME ZRANGE
-- @include clock record properties content sound index final forget fence describe_set pauses
local state, queue, pool, attempts_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, dead, reasons, ended_keys, moves = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local known = redis.call('HMGET', state, 'epoch', 'watermark', 'ahead', 'policies', 'paused', 'held')
if fenced(state, known[1], ARGV[1]) then
  return { 'fenced', known[1] }
end
if (known[4] or '') ~= ARGV[4] then
  return { 'policies', known[4] or '' }
end
local now = clock(ARGV[2])
local here, ahead = now, 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) < now then
  ahead = now - tonumber(ARGV[3])
  now = tonumber(ARGV[3]) -- the earlier of the two clocks, as in pull
end
local known_ahead = tonumber(known[3] or '') or 0
local expiry_now, in_doubt = math.max(now, here - known_ahead), ahead - known_ahead >= 1000
local most_bytes, now_text = tonumber(ARGV[7]), digits(now)
local window, most_final, traced = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
local named_at, n_known = 12, tonumber(ARGV[11])
local paused, some_held, all_held, source = known[5] or nil, known[6] == '1', false, KEYS[11]
local streams_behind = 10 + math.max(1, n_known)
-- @include named_topics

-- Return whether a ticket sorts after another, by bytes: `<` would use the language of the server.
local function stands_behind(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- Return how many messages of a topic may be taken. Permits may have ended: this call may have waited in a stalled server.
local function most_of(place, topic)
  local most, valid = ARGV[named_end + place - 1], 0
  if tonumber(most) then
    return tonumber(most)
  end
  for some, by in string.gmatch(most, '(%d+)@(%d+)') do
    valid = valid + (tonumber(by) > here and tonumber(some) or 0)
  end
  bounds[topic] = { most = valid }
  return valid
end

local upto, upto_ticket = tonumber(ARGV[5]) or math.huge, ARGV[6]
local entries, due_count, due_of, ids, upto_of = {}, 0, {}, {}, {}

-- Add these tickets of a set, up to where the pulls have reached.
local function add(set, first, last)
  local page = redis.call('ZRANGE', set, first, last, 'WITHSCORES')
  for i = 1, #page, 2 do
    local due = tonumber(page[i + 1])
    if not all_held and (due > now or due > upto or due == upto and stands_behind(page[i], upto_ticket)) then
      break
    end
    due_count = due_count + 1
    entries[due_count], due_of[page[i]], ids[due_count] = page[i], page[i + 1], sub(page[i], 1, -9)
  end
end

local mark_of_topic = paused and marks_of(paused)
for place = 1, n_known do
  local topic = ARGV[named_at + 3 * place - 3]
  local most = most_of(place, topic)
  if most > 0 and not (mark_of_topic and mark_of_topic(topic) < math.huge) then
    add(KEYS[10 + place], 0, most - 1)
  end
  upto_of[place] = due_count
end
local LOOK = 500 -- tickets of another set, of which many may have no message any more
local other, room, first = n_known == 0 and ARGV[named_at], due_count, 0
if other then
  room = tonumber(ARGV[named_at + 1])
  all_held = not room
  room = room or LOOK
  first = math.floor(math.max(0, redis.call('ZCARD', source) - room) * tonumber(ARGV[named_at + 2]))
  add(source, first, first + LOOK - 1)
  upto_of[1] = due_count
end
if due_count > 0 then
  -- @guard HDEL HINCRBY HSET HSETNX ZADD ZCARD ZCOUNT ZREM ZREMRANGEBYRANK
end
local gated, is_paused, is_held, unreachable = other and (all_held or paused ~= nil or some_held), nil, nil, nil
if gated then
  -- @include held
  -- @guard HEXISTS ZMSCORE
end
local fresh, unlisted, in_memory, next_due = false, 'general', nil, nil
redis.call('ZCARD', queue) -- fails here if it is of another type, and not behind the first XADD
-- @include look
-- @include set_aside
local scores, back, latest_back = {}, {}, -1
for i, ticket in ipairs(tickets) do
  scores[i] = due_of[ticket]
  back[2 * i - 1], back[2 * i] = scores[i], ticket
  latest_back = math.max(latest_back, tonumber(scores[i]))
end
for first = 1, #back, 2000 do
  redis.call('ZADD', queue, unpack(back, first, math.min(first + 1999, #back)))
end
if latest_back > (tonumber(known[2] or '') or -1) then -- it may be lower again than when they were pulled
  redis.call('HSET', state, 'watermark', digits(latest_back))
end
local left, removed = held_now, 0
for place = 1, #upto_of do
  local name, set = other or 'h:' .. ARGV[named_at + 3 * place - 3], KEYS[10 + place]
  local count = math.min(looked, upto_of[place]) - removed
  if count > 0 then
    redis.call('ZREMRANGEBYRANK', set, first, first + count - 1)
    removed = removed + count
  end
  local n, described = #left, describe_set(state, set, 'parked:' .. name)
  left[n + 1], left[n + 2], left[n + 3], left[n + 4] = name, described[2], described[3], described[4]
end
if appended > 0 then
  redis.call('HINCRBY', state, 'forwarded', appended)
end
-- @include leave
local more, permits_left = true, {}
for topic, bound in pairs(bounds) do
  permits_left[#permits_left + 1], permits_left[#permits_left + 2] = topic, bound.most
end
-- @include forget_ended
return {
  'ok', now_text, appended, tickets, scores, tried, returned, refused, traces, permits_left, left,
  other and first_orphan and due_of[first_orphan] or '',
}
