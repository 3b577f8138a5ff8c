-- Put dead letters back into the queue, due now. They get a new generation and no attempts. They are still exposed,
-- because they were in flight before.
-- KEYS: state queue pool attempts dead reasons audit moves final.
-- ARGV: now, wake channel, window of final, entry or '', name of the call or '', the ids, deadline.
--   See include/audit for the entry, include/rights for the ids, and include/deadline.
-- Returns: for each id 'scheduled', 'not_dead' or 'corrupt'.
--   A named call that is repeated gets 'scheduled' again (see include/repeated).
--   The answer is 'moved' if the queue is closed and does not have the id.
--   With an entry, the last element lists the changes for the audit (see include/note).
-- @promise
-- @include clock deadline record rights generation wake final closed moved repeated
local state, queue, pool, attempts, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local audit, now, entry, call, moves, final = KEYS[7], clock(ARGV[1]), ARGV[4], ARGV[5], KEYS[8], KEYS[9]
local window, by_both = tonumber(ARGV[3]), earlier(state, now)
local noted = entry ~= '' and {}
local generation
local answer = {}
for _, id in ipairs(allowed_ids(pool, 6)) do
  local record, other = record_or_answer(state, pool, final, moves, id, call, by_both, window)
  if other then
    answer[#answer + 1] = (other[1] == 'scheduled' or other[1] == 'moved') and other[1] or 'not_dead'
  elseif not redis.call('ZSCORE', dead, id) then
    local is_redriven = redis.call('HGET', attempts, id) == '0' -- and was not tried since
    if is_redriven then
      remember_call(moves, id, call, digits(now))
    end
    answer[#answer + 1] = is_redriven and 'scheduled' or 'not_dead'
  elseif not fields(record) then
    answer[#answer + 1] = 'corrupt'
  else
    generation = generation or generation_of(redis.call('HINCRBY', state, 'generation', 1))
    record = moved(record, generation, now, false)
    redis.call('HSET', pool, id, record)
    redis.call('HSET', attempts, id, '0')
    redis.call('ZADD', queue, digits(now), ticket_of(id, record))
    redis.call('ZREM', dead, id)
    redis.call('HDEL', reasons, id)
    remember_call(moves, id, call, digits(now))
    if noted then
      -- @include note
    end
    answer[#answer + 1] = 'scheduled'
  end
end
if generation then
  wake(state, ARGV[2], now, unpack(redis.call('HMGET', state, 'sleep_until', 'watermark')))
end
if noted and #noted > 0 then
  -- @include audit
end
if noted then
  answer[#answer + 1] = noted
end
return answer
