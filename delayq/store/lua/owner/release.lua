-- Take messages out of the sets of some topics, or out of one other parked set, the earliest of each first: those of a stream in this
-- Redis are appended and removed here, exactly once; the others stand in the queue from then on, and are returned: their owner has
-- them in flight. Nothing is taken of a paused topic, and nothing that is not due or that the owner's pulls have not come to. What
-- comes out of another set is moved into the set of its topic if a pull would move it there. An owner that does not hear the answer
-- finds the messages in the queue, from its head on.
-- KEYS: state queue pool attempts keys final dead reasons ended, the set of each topic or the other set, then the streams
-- ARGV: epoch, now, the node's now (ms, or ''), the version of the policies that the owner goes by, due and ticket that the pulls
--       have come to ('' '' = all that is due), most bytes, window of final, most in final, '1' if traces are wanted, how many
--       topics are named, how many are limited; the topics as in pull; then of each topic how many to take at most. Of another set,
--       if no topic is named: its name, how many to take at most ('all': all of it goes into the sets of its topics), and where to
--       begin (0 = the earliest, up to 1)
-- Returns: {'fenced', epoch} or {'policies', the version that the queue has}: it is another one, and nothing was done
--          or {'ok', now, how many were appended, tickets, dues, attempts, records, topic and error of each stream that takes
--          nothing, id, topic, attempt and traceparent of each that was appended and has one, name and how many more might have been
--          appended of each share; of each set that it has changed, but for those of paused topics: its name, due and ticket of the
--          earliest that is left ('' '' = none), how many tickets are left; and of another set the due of the earliest ticket that
--          was dropped, as its message has gone or has another one ('' = none)}
-- @flags allow-oom
-- @empties
-- @first EXISTS HMGET TIME ZRANGE
-- @include clock record properties content sound index final forget fence describe_set pauses
local state, queue, pool, attempts_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, dead, reasons, ended_keys = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
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
local named_at, n_known, n_limited = 13, tonumber(ARGV[11]), tonumber(ARGV[12])
local paused, some_held, all_held, source = known[5] or nil, known[6] == '1', false, KEYS[10]
local streams_behind = 9 + math.max(1, n_known)
-- @include named_topics

-- Whether a ticket stands behind that of another message, by bytes: `<` would go by the language of the server.
local function stands_behind(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- How many of a topic may be taken: of those that share permits only so many together.
local function most_of(place, topic)
  local most, share = tonumber(ARGV[named_end + place - 1]), bounds and bounds[topic]
  if share then
    most = math.min(most, share.most - (share.taken or 0))
  end
  return most
end

local upto, upto_ticket = tonumber(ARGV[5]) or math.huge, ARGV[6]
local entries, due_count, due_of, ids, upto_of = {}, 0, {}, {}, {}

-- Look at these tickets of a set, as far as the pulls have come.
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
  local topic, before = ARGV[named_at + 3 * place - 3], due_count
  local most = most_of(place, topic)
  if most > 0 and not (mark_of_topic and mark_of_topic(topic) < math.huge) then
    add(KEYS[9 + place], 0, most - 1)
    if bounds and bounds[topic] then
      bounds[topic].taken = (bounds[topic].taken or 0) + due_count - before
    end
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
  local name, set = other or 'h:' .. ARGV[named_at + 3 * place - 3], KEYS[9 + place]
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
local more = true
-- @include permits_left
-- @include forget_ended
return {
  'ok', now_text, appended, tickets, scores, tried, returned, refused, traces, permits_left, left,
  other and first_orphan and due_of[first_orphan] or '',
}
