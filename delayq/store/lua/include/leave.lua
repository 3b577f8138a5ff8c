-- Finish what `look` has done: what was appended leaves Redis.
if appended > 0 then
  redis.call('HDEL', pool, unpack(gone_ids))
  if any_attempts then
    redis.call('HDEL', attempts_key, unpack(gone_ids))
  end
  for first = 1, #members, 2000 do
    redis.call('ZREM', index, unpack(members, first, math.min(first + 1999, #members)))
  end
  if n_keyed > 0 then
    redis.call('HSET', ended_keys, unpack(keyed))
  end
  if n_ends > 0 then
    redis.call('ZADD', final, unpack(ends))
  end
end
if buried > 0 then
  redis.call('HINCRBY', state, 'buried', buried)
end
