-- Delete dead letters permanently.
-- KEYS: state pool attempts keys dead reasons final audit ended moves.
-- ARGV: now, window of final, most in final, entry or '', name of the caller's API key or '', the ids, deadline.
--   See include/audit for the entry, include/rights for the ids, and include/deadline.
-- Returns: for each id 1, 0 or -1.
--   1 means discarded, now or by the same call before. 0 means that the message is no dead letter.
--   -1 means that the queue is closed and does not have the id: ask the next layout.
--   With an entry, the last element lists the changes for the audit (see include/note).
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline record unreserved index rights final forget closed
local state, pool, attempts, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, reasons, final, audit, ended_keys, moves = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now = earlier(state, clock(ARGV[1]))
local window, entry, by = tonumber(ARGV[2]), ARGV[4], ARGV[5]
local noted = entry ~= '' and {}
local answer = {}
for i, id in ipairs(allowed_ids(pool, 6)) do
  local removed = redis.call('ZREM', dead, id)
  if removed == 1 then
    local record = redis.call('HGET', pool, id) or ''
    local members = {}
    local remembered = end_of_record(members, record, id, by)
    if #members > 0 then
      redis.call('ZREM', index, unpack(members))
    end
    redis.call('HSET', ended_keys, id, remembered)
    redis.call('HDEL', pool, id)
    redis.call('HDEL', attempts, id)
    redis.call('HDEL', reasons, id)
    redis.call('ZADD', final, ended(now, DISCARDED), id)
    redis.call('HINCRBY', state, 'discarded', 1)
    if noted then
      -- @include note
    end
  elseif redis.call('HEXISTS', pool, id) == 0 then
    if ending(redis.call('ZSCORE', final, id), now, window) == DISCARDED then
      removed = 1
    elseif unknown(state) == 'moved' then
      removed = -1
    end
  end
  answer[i] = removed
end
forget_over(final, index, ended_keys, moves, tonumber(ARGV[3]))
if noted and #noted > 0 then
  -- @include audit
end
if noted then
  answer[#answer + 1] = noted
end
return answer
