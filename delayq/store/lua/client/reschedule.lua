-- Give a message another due time, if a cancel of it would be certain. It gets a new generation, so that no process can
-- settle it by the old one.
-- KEYS: state queue pool attempts final dead audit moves.
-- ARGV: now, wake channel, window of final, bound, spec, entry or '', name of the call or '', the id, deadline.
--   An id is remembered after delivery if its delay (ms) is below the bound.
--   The spec is 'a' (at) or 'r' (after) and ms.
--   See include/audit for the entry, include/rights for the id, and include/deadline.
-- Returns: {'scheduled', due time}, or {a state}. A named call that is repeated gets the same answer (see
--   include/repeated).
--   A state is 'in_flight', 'parked', 'dead', 'delivered', 'cancelled', 'removed_in_flight', 'discarded', 'not_found'
--   or 'invalid'.
--   The answer is {'moved'} if the queue is closed and does not have the id: ask the next layout.
--   With an entry and a change, the change for the audit follows the due time (see include/note).
-- @promise
-- @include clock deadline record rights generation wake final life closed moved repeated
local state, queue, pool, attempts, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = clock(ARGV[1])
local spec, audit, entry, call, moves = ARGV[5], KEYS[7], ARGV[6], ARGV[7], KEYS[8]
local window, by_both = tonumber(ARGV[3]), earlier(state, now)
local id = allowed_ids(pool, 8)[1]
local due = tonumber(string.sub(spec, 2))
if due and string.byte(spec) == 114 then
  due = now + due
end
if not due or due ~= due or due < 0 or due >= 1e13 or due % 1 ~= 0 then
  return { 'invalid' }
end
due = math.max(due, now)

local record, known = record_or_answer(state, pool, final, moves, id, call, by_both, window)
if known then
  return known
end
local ticket = ticket_of(id, record)
local place, score = place_of(queue, dead, id, ticket)
if place == 'dead' then
  return { place }
end
if redis.call('HEXISTS', attempts, id) == 1 or not untouched(record, score, floor_of_certainty(state, now)) then
  return { place == 'parked' and place or 'in_flight' }
end
local mark = (byte(record, MARK) or 48) - 48
if mark % 2 == 1 and (score or due) == due and tonumber(string.sub(record, ASKED, MARK - 1)) == due then
  remember_call(moves, id, call, digits(due))
  return { 'scheduled', digits(due) } -- it has this due time already
end
local generation = generation_of(redis.call('HINCRBY', state, 'generation', 1))
record = moved(record, generation, due, due - now < tonumber(ARGV[4]))
redis.call('ZREM', queue, ticket)
redis.call('HSET', pool, id, record)
redis.call('ZADD', queue, digits(due), ticket_of(id, record))
redis.call('HINCRBY', state, 'rescheduled', 1)
remember_call(moves, id, call, digits(due))
wake(state, ARGV[2], due, unpack(redis.call('HMGET', state, 'sleep_until', 'watermark')))
local answer = { 'scheduled', digits(due) }
if entry ~= '' then
  local noted = {}
  -- @include note
  -- @include audit
  answer[3] = noted
end
return answer
