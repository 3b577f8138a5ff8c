-- Make messages dead letters, each with a reason. The record stays in the pool.
-- KEYS: state queue attempts dead reasons.
-- ARGV: epoch, now, then for each message: ticket, due time as pulled, attempts as pulled, attempts made, reason.
-- Returns: {'fenced'}, or {'ok', then 'ok', 'gone' or 'changed' for each message}.
-- @flags allow-oom
-- @empties
-- @include clock fence pulled
local state, queue, attempts = KEYS[1], KEYS[2], KEYS[3]
local dead, reasons = KEYS[4], KEYS[5]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local now = digits(clock(ARGV[2]))
local answer, buried = { 'ok' }, 0

-- Return whether this same call buried the message before. A repeated call changes nothing and gets the same answer.
local function done(id, made, reason)
  local written = redis.call('ZSCORE', dead, id) and redis.call('HGET', reasons, id)
  return written and string.match(written, ' (.*)') == made .. ' ' .. reason
end

for i = 3, #ARGV, 5 do
  local ticket = ARGV[i]
  local how = as_pulled(queue, attempts, ticket, ARGV[i + 1], ARGV[i + 2])
  if how == 'ok' then
    local id = string.sub(ticket, 1, -9)
    -- The order matters: if Redis refuses one of the first two commands, the message is still in its queue.
    redis.call('HSET', reasons, id, now .. ' ' .. ARGV[i + 3] .. ' ' .. ARGV[i + 4])
    redis.call('ZADD', dead, now, id)
    redis.call('ZREM', queue, ticket)
    redis.call('HDEL', attempts, id)
    buried = buried + 1
  elseif how == 'gone' and done(string.sub(ticket, 1, -9), ARGV[i + 3], ARGV[i + 4]) then
    how = 'ok'
  end
  answer[#answer + 1] = how
end
if buried > 0 then
  redis.call('HINCRBY', state, 'buried', buried)
end
return answer
