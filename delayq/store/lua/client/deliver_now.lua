-- Make messages due now. A waiting message gets the due time now, as `reschedule` gives it. A message that waits for a
-- retry is retried now. A parked message returns to the queue and passes the circuit of its target as a probe. A held
-- message is delivered only by force, despite pauses and limits. A message that passes a circuit or a pause is exposed
-- until its next attempt is counted. An overdue message with an ordering key keeps its due time, so that it keeps its
-- place among the messages of its key.
-- KEYS: state queue pool attempts final dead audit moves, then the held sets of the messages' topics.
-- ARGV: now, wake channel, window of final, '1' by force, entry or '', name of the call or '', the ids, deadline.
--   See include/audit for the entry, include/rights for the ids, and include/deadline.
-- Returns: for each id {'scheduled', due time}, or {a state}.
--   A named call that is repeated gets the same answer (see include/repeated).
--   A state is 'held', 'in_flight', 'dead', 'delivered', 'cancelled', 'removed_in_flight', 'discarded' or 'not_found'.
--   The answer is {'moved'} if the queue is closed and does not have the id.
--   With an entry, the last element lists the changes for the audit (see include/note).
-- @promise
-- @include clock deadline record rights generation wake final life closed moved describe_set repeated
local state, queue, pool, attempts, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, by_force, audit, entry, call, moves = clock(ARGV[1]), ARGV[4] == '1', KEYS[7], ARGV[5], ARGV[6], KEYS[8]
local noted = entry ~= '' and {}
local floor, paused, watermark, by_both = floor_of_certainty(state, now)
local window = tonumber(ARGV[3])
local sets = {}
for i = 9, #KEYS do
  local topic = string.match(KEYS[i], ':parked:h:(.*)$')
  sets[topic] = KEYS[i]
end
local generation, earliest

-- Return the answer for a message that is, or becomes, due at `due`.
local function scheduled(id, due)
  due = digits(due)
  remember_call(moves, id, call, due)
  return { 'scheduled', due }
end

local function deliver(id)
  local record, answer = record_or_answer(state, pool, final, moves, id, call, by_both, window)
  if answer then
    return answer
  end
  local ticket = ticket_of(id, record)
  local place, due = place_of(queue, dead, id, ticket)
  if place == 'dead' then
    return { place }
  end
  local topic = topic_of(record)
  mark_of = mark_of or paused and marks_of(paused)
  local held = paused and mark_of(topic) < math.huge
  local aside = not due and sets[topic] and redis.call('ZSCORE', sets[topic], ticket)
  held = held or aside
  local tried = redis.call('HGET', attempts, id)
  if due and tried and string.find(tried, held and '^%+0%d' or '^%+') then
    return scheduled(id, due) -- another call has done this
  elseif due and due <= watermark and (tried or not untouched(record, due, floor, paused)) then
    return { 'in_flight' }
  elseif held and not by_force then
    return { 'held' }
  elseif due and due <= now and not held then
    return scheduled(id, due)
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
  if noted then
    -- @include note
  end
  if held or not due then
    redis.call('HSET', attempts, id, (held and '+0' or '+') .. digits(tonumber(tried or '') or 0))
  end
  return scheduled(id, at)
end

local answer = {}
for i, id in ipairs(allowed_ids(pool, 7)) do
  answer[i] = deliver(id)
end
if earliest then
  wake(state, ARGV[2], earliest, unpack(redis.call('HMGET', state, 'sleep_until', 'watermark')))
end
if noted and #noted > 0 then
  -- @include audit
end
if noted then
  answer[#answer + 1] = noted
end
return answer
