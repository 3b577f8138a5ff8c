-- Whether a closed queue is done with: it holds no message and remembers no id. Once so, it stays so. Ids that have ended
-- before the window are forgotten here, as nothing else ends any more.
-- KEYS: state queue pool final dead keys ended
-- ARGV: now, window of final
-- Returns: 1 | 0
-- @flags allow-oom
-- @include clock index final forget
local state, queue, pool, final, dead, index, ended_keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
if redis.call('HGET', state, 'closed') ~= '1' or redis.call('EXISTS', queue, pool, dead) > 0 then
  return 0
end
for _, field in ipairs(redis.call('HKEYS', state)) do
  if string.sub(field, 1, 7) == 'parked:' then
    return 0
  end
end
forget(final, index, ended_keys, too_many(final, earlier(state, clock(ARGV[1])), tonumber(ARGV[2]), math.huge))
return redis.call('EXISTS', final) == 0 and 1 or 0
