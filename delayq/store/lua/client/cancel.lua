-- Cancel messages. The answer 'cancelled' is certain: the message was never in flight. It is not due yet, or a pause
-- has held it since before its due time. Any other pending message is removed too, but the answer is 'in_flight': it
-- may have been delivered, or may still be.
-- KEYS: state queue pool attempts keys final dead audit ended moves.
-- ARGV: now, window of final, most in final, '1' or '', entry or '', name of the caller's API key or '', the ids, deadline.
--   With '1' anybody may schedule an id again if its message was cancelled for certain.
--   See include/audit for the entry, include/rights for the ids, and include/deadline.
-- Returns: for each id 'cancelled', 'in_flight', 'delivered', 'dead', 'discarded' or 'not_found'.
--   The answer is 'moved' if the queue is closed and does not have the id: ask the next layout.
--   With an entry, the last element lists the changes for the audit (see include/note).
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline record unreserved index rights final forget life closed
local state, queue, pool, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, dead, audit = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local ended_keys, moves, by = KEYS[9], KEYS[10], ARGV[6]
local now = clock(ARGV[1])
local window, most_final, freed, entry = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1' and FREE, ARGV[5]
local noted = entry ~= '' and {}
local floor, paused, _, by_both = floor_of_certainty(state, now)

local function cancel(id)
  local record = redis.call('HGET', pool, id)
  if not record then
    local how = ending(redis.call('ZSCORE', final, id), by_both, window)
    return how == CANCELLED_IN_FLIGHT and 'in_flight' or ENDS[how] or unknown(state)
  end
  local ticket = ticket_of(id, record)
  local place, due = place_of(queue, dead, id, ticket)
  if place == 'dead' then
    return 'dead'
  end
  local exposed = redis.call('HEXISTS', attempts, id) == 1
  local certain = not exposed and untouched(record, due, floor, paused)
  redis.call('ZREM', queue, ticket)
  redis.call('HDEL', pool, id)
  redis.call('HDEL', attempts, id)
  local members = {}
  local remembered = end_of_record(members, record, id, by)
  if #members > 0 then
    redis.call('ZREM', index, unpack(members))
  end
  redis.call('HSET', ended_keys, id, remembered)
  redis.call('ZADD', final, ended(by_both, certain and CANCELLED or CANCELLED_IN_FLIGHT, certain and freed), id)
  if noted then
    -- @include note
  end
  redis.call('HINCRBY', state, certain and 'cancelled' or 'cancelled_in_flight', 1)
  return certain and 'cancelled' or 'in_flight'
end

local answer = {}
for i, id in ipairs(allowed_ids(pool, 7)) do
  answer[i] = cancel(id)
end
forget_over(final, index, ended_keys, moves, most_final)
if noted and #noted > 0 then
  -- @include audit
end
if noted then
  answer[#answer + 1] = noted
end
return answer
