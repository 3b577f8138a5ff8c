-- Return the due time and ticket of the first message in a parked set, and the number of its tickets. The state has a
-- field for each set that is not empty. The value means nothing: former versions keep a count of theirs in it.
local function describe_set(state, parked, field)
  local head = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
  if not head[1] then
    redis.call('HDEL', state, field)
    return { 'ok', '', '', 0 }
  end
  if redis.call('HSETNX', state, field, '0') == 1 and string.sub(field, 8, 9) == 'h:' then
    redis.call('HSET', state, 'held', '1')
  end
  return { 'ok', head[2], head[1], redis.call('ZCARD', parked) }
end
