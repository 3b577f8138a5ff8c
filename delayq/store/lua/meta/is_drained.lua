-- Return whether a closed queue is drained: it holds no message and remembers no id. A drained queue stays drained. The
-- script forgets ids that ended before the window, because no later change of this queue would do it.
-- KEYS: state queue pool final dead keys ended moves.
-- ARGV: now, window of final.
-- Returns: 1 or 0.
-- @flags allow-oom
-- @include clock index final forget
local state, queue, pool, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local index, ended_keys, moves = KEYS[6], KEYS[7], KEYS[8]
if redis.call('HGET', state, 'closed') ~= '1' or redis.call('EXISTS', queue, pool, dead) > 0 then
  return 0
end
for _, field in ipairs(redis.call('HKEYS', state)) do
  if string.sub(field, 1, 7) == 'parked:' then
    return 0
  end
end
local count = too_many(final, earlier(state, clock(ARGV[1])), tonumber(ARGV[2]), math.huge)
forget(final, index, ended_keys, moves, count)
return redis.call('EXISTS', final) == 0 and 1 or 0
