-- Begin the next turn of a parked set: what was asked for in an earlier one does nothing any more.
local function begin_turn(state, field)
  redis.call('HSET', state, field, redis.call('HINCRBY', state, 'turns', 1))
end

-- The answer of park and unpark: the turn of the set, due and ticket of the lowest one in it, and how many stand in it. An
-- empty set has no field.
local function set_now(state, parked, field)
  local head = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
  if not head[1] then
    redis.call('HDEL', state, field)
    return { 'ok', '', '', '', 0 }
  end
  if redis.call('HEXISTS', state, field) == 0 then
    begin_turn(state, field)
  end
  return { 'ok', redis.call('HGET', state, field), head[2], head[1], redis.call('ZCARD', parked) }
end
