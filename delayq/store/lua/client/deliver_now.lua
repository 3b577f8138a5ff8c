-- Have messages delivered now: one that waits gets this due, as `reschedule` gives it; one that is tried again later is tried
-- now; one that is parked goes back into the queue and is let past its target's circuit, as a probe. What is held goes only
-- by force, in spite of pauses and limits. One that is let past anything is exposed, and is so until its next attempt is counted.
-- With an ordering key, what was due before keeps its due, and so its place: behind what goes before it, before what follows.
-- KEYS: state queue pool attempts final dead audit calls, then the held sets of the messages' topics
-- ARGV: now, wake channel, window of final, '1' by force, entry (see include/audit) or '', then the ids (see include/rights);
--       the deadline (see include/deadline)
-- Returns: of each {'scheduled', due}, also to the same call again (see include/repeated) unless it is held by then, or {'held' |
--          'in_flight' | 'dead' | 'delivered' | 'cancelled' | 'removed_in_flight' | 'discarded' | 'not_found'} or {'moved'}: it
--          is not here and the queue is closed; with an entry, behind these, what of it is written down (see include/note)
-- @promise
-- @include clock deadline record rights generation wake final life closed moved describe_set repeated
local state, queue, pool, attempts, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, by_force, audit, entry, calls = clock(ARGV[1]), ARGV[4] == '1', KEYS[7], ARGV[5], KEYS[8]
local noted = entry ~= '' and {}
local floor, paused, watermark, by_both = floor_of_certainty(state, now)
local window = tonumber(ARGV[3])
local sets = {}
for i = 9, #KEYS do
  local topic = string.match(KEYS[i], ':parked:h:(.*)$')
  sets[topic] = KEYS[i]
end
local generation, earliest
local call, made = by_force and 'now by force' or 'now', {}

-- The answer of the same call before, if there was one: else this one.
local function otherwise(id, answer)
  local before = due_of_call(calls, id, call, answer, now, by_both, window)
  return before and { 'scheduled', before } or { answer }
end

local function deliver(id)
  local record = redis.call('HGET', pool, id)
  if not record then
    return otherwise(id, ENDS[ending(redis.call('ZSCORE', final, id), by_both, window)] or unknown(state))
  end
  local ticket = ticket_of(id, record)
  local place, due = place_of(queue, dead, id, ticket)
  if place == 'dead' then
    return otherwise(id, place)
  end
  local topic = topic_of(record)
  mark_of = mark_of or paused and marks_of(paused)
  local held = paused and mark_of(topic) < math.huge
  local aside = not due and sets[topic] and redis.call('ZSCORE', sets[topic], ticket)
  held = held or aside
  local tried = redis.call('HGET', attempts, id)
  if due and tried and string.find(tried, held and '^%+0%d' or '^%+') then
    return { 'scheduled', digits(due) } -- the same call again
  elseif due and due <= watermark and (tried or not untouched(record, due, floor, paused)) then
    return otherwise(id, 'in_flight')
  elseif held and not by_force then
    return { 'held' }
  elseif due and due <= now and not held then
    return { 'scheduled', digits(due) }
  end
  local keyed = (byte(record, ORDERING_LENGTH) or 0) > 0
  local was = keyed and (due or tonumber(aside or string.sub(record, ASKED, MARK - 1)))
  local stays = was and was <= floor -- others of its key may have gone before it up to there
  local at = stays and was or now
  if not due or not tried or keyed then
    generation = generation or generation_of(redis.call('HINCRBY', state, 'generation', 1))
    redis.call('ZREM', queue, ticket)
    if aside then
      redis.call('ZREM', sets[topic], ticket)
      describe_set(state, sets[topic], 'parked:h:' .. topic)
    end
    if stays then
      record = generation .. string.sub(record, GENERATION + 1)
    else
      record = moved(record, generation, now, true)
      redis.call('HINCRBY', state, 'rescheduled', 1)
    end
    ticket = ticket_of(id, record)
    redis.call('HSET', pool, id, record)
  end
  redis.call('ZADD', queue, digits(at), ticket)
  earliest = math.min(earliest or at, at)
  made[#made + 1], made[#made + 2] = digits(at), id .. '\0' .. call
  if noted then
    -- @include note
  end
  if held or not due then
    redis.call('HSET', attempts, id, (held and '+0' or '+') .. digits(tonumber(tried or '') or 0))
  end
  return { 'scheduled', digits(at) }
end

local answer = {}
for i, id in ipairs(allowed_ids(pool, 6)) do
  answer[i] = deliver(id)
end
if earliest then
  remember_calls(calls, made, by_both, window)
  wake(state, ARGV[2], earliest, unpack(redis.call('HMGET', state, 'sleep_until', 'watermark')))
end
if noted and #noted > 0 then
  -- @include audit
end
if noted then
  answer[#answer + 1] = noted
end
return answer
