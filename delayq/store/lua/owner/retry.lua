-- Count a failed attempt and set when to try again. It never makes a message anew: what was cancelled stays so.
-- KEYS: state queue attempts
-- ARGV: epoch, then of each: ticket, due as pulled, attempts as pulled, due of the next attempt ('' = keep the due)
-- Returns: {'fenced'} or {'ok', 'ok' | 'gone' | 'changed' of each}
-- @flags allow-oom
-- @empties
-- @include fence pulled
local state, queue, attempts = KEYS[1], KEYS[2], KEYS[3]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local answer, retried = { 'ok' }, 0

-- Whether the message stands as this very call leaves it: the same again changes nothing and says the same.
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
