-- Delete dead letters for good.
-- KEYS: state pool attempts keys dead reasons
-- ARGV: the ids (see include/rights)
-- Returns: 1 | 0 (it is no dead letter) | -1 (it is not here, and the queue is closed: ask the next layout) of each
-- @flags allow-oom
-- @promise
-- @empties
-- @include record rights closed
local state, pool, attempts, index, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local answer = {}
for i, id in ipairs(allowed_ids(pool, 1)) do
  local removed = redis.call('ZREM', dead, id)
  if removed == 1 then
    local record = redis.call('HGET', pool, id)
    local members = record and key_members(record, id) or {}
    if #members > 0 then
      redis.call('ZREM', index, unpack(members))
    end
    redis.call('HDEL', pool, id)
    redis.call('HDEL', attempts, id)
    redis.call('HDEL', reasons, id)
    redis.call('HINCRBY', state, 'discarded', 1)
  elseif redis.call('HEXISTS', pool, id) == 0 and unknown(state) == 'moved' then
    removed = -1
  end
  answer[i] = removed
end
return answer
