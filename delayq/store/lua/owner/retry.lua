-- Count a failed attempt and set the time of the next one. A retry never restores a message, so a cancelled message
-- stays cancelled.
-- KEYS: state queue attempts.
-- ARGV: epoch, then for each message: ticket, due time as pulled, attempts as pulled, next due time ('' = unchanged).
-- Returns: {'fenced'}, or {'ok', then 'ok', 'gone' or 'changed' for each message}.
-- @flags allow-oom
-- @empties
-- @include fence pulled
local state, queue, attempts = KEYS[1], KEYS[2], KEYS[3]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local answer, retried = { 'ok' }, 0

-- Return whether this same call changed the message before. A repeated call changes nothing and gets the same answer.
local function done(ticket, due, tries)
  local made = redis.call('HGET', attempts, string.sub(ticket, 1, -9))
  return tonumber(made or '') == tries + 1 and tonumber(redis.call('ZSCORE', queue, ticket)) == tonumber(due)
end

for i = 2, #ARGV, 4 do
  local ticket, tries = ARGV[i], tonumber(ARGV[i + 2]) or 0
  local how = as_pulled(queue, attempts, ticket, ARGV[i + 1], tries)
  if how == 'ok' then
    redis.call('HSET', attempts, string.sub(ticket, 1, -9), string.format('%.0f', tries + 1))
    if ARGV[i + 3] ~= '' then
      redis.call('ZADD', queue, ARGV[i + 3], ticket)
    end
    retried = retried + 1
  elseif how == 'changed' and done(ticket, ARGV[i + 3] ~= '' and ARGV[i + 3] or ARGV[i + 1], tries) then
    how = 'ok'
  end
  answer[#answer + 1] = how
end
if retried > 0 then
  redis.call('HINCRBY', state, 'retried', retried)
end
return answer
