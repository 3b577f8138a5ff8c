-- Dead letters by their ids.
-- KEYS: pool dead reasons
-- ARGV: the ids
-- Returns: of each: {when it was buried, record, reason}; '' of one that is no dead letter
-- @flags no-writes
local pool, dead, reasons = KEYS[1], KEYS[2], KEYS[3]
local answer = {}
for i, id in ipairs(ARGV) do
  local buried = redis.call('ZSCORE', dead, id)
  answer[i] = buried and { buried, redis.call('HGET', pool, id) or '', redis.call('HGET', reasons, id) or '' } or ''
end
return answer
