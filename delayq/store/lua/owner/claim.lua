-- Begin an epoch of a queue. Redis keeps the highest epoch that it has seen. The first claim records its time, which
-- identifies the queue's data: a Redis server with other data has another time.
-- KEYS: state.
-- ARGV: epoch.
-- Returns: {'ok' or 'fenced', the epoch that Redis has, then the names of the parked sets}.
-- @flags allow-oom
-- @empties
-- @include clock fence
local stored = redis.call('HGET', KEYS[1], 'epoch')
local old = fenced(KEYS[1], stored, ARGV[1])
local now, micro = clock('')
redis.call('HSETNX', KEYS[1], 'born', string.format('%.0f.%03.0f', now, micro))
local any_held = false
local answer = { old and 'fenced' or 'ok', old and stored or ARGV[1] }
local state = redis.call('HGETALL', KEYS[1])
for i = 1, #state, 2 do
  if string.sub(state[i], 1, 7) == 'parked:' then
    answer[#answer + 1] = string.sub(state[i], 8)
    any_held = any_held or string.sub(state[i], 8, 9) == 'h:'
  end
end
if any_held then
  redis.call('HSET', KEYS[1], 'held', '1') -- former versions set messages aside without it
end
return answer
