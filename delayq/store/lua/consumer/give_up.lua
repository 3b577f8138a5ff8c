-- Store messages that the consumers of a group gave up. Each is a dead letter at once, with the reasons of the consumers.
-- KEYS: state pool keys dead reasons
-- ARGV: now. Then of each message: id, content (see codec.py), deliveries, reason. Last the deadline (see include/deadline).
-- Returns: 'dead' (now, or it is one already) | 'taken' (a message of this id waits) | 'moved' of each
-- @promise
-- @include clock deadline offsets generation closed
local state, pool, index, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local answer, stored, generation = {}, 0, nil
for i = 2, #ARGV, 4 do
  local id = ARGV[i]
  if redis.call('ZSCORE', dead, id) then
    answer[#answer + 1] = 'dead'
  elseif redis.call('HEXISTS', pool, id) == 1 then
    answer[#answer + 1] = 'taken'
  elseif unknown(state) == 'moved' then
    answer[#answer + 1] = 'moved'
  else
    generation = generation or generation_of(redis.call('HINCRBY', state, 'generation', 1))
    local record = generation .. string.format('%013.0f', now) .. '2' .. ARGV[i + 1]
    -- In this order: if Redis refuses one of them, nothing is a message yet.
    redis.call('HSET', reasons, id, digits(now) .. ' ' .. ARGV[i + 2] .. ' ' .. ARGV[i + 3])
    local topic, tags, ordering, options, high, low = byte(record, TOPIC_LENGTH, PROPERTIES_LENGTH - 1)
    local keys = FIELDS + topic + tags + ordering + options
    for key in string.gmatch(string.sub(record, keys, keys + high * 256 + low - 1), '[^ ]+') do
      redis.call('ZADD', index, '0', key .. '\0' .. id)
    end
    redis.call('ZADD', dead, digits(now), id)
    redis.call('HSET', pool, id, record)
    stored = stored + 1
    answer[#answer + 1] = 'dead'
  end
end
if stored > 0 then
  redis.call('HINCRBY', state, 'scheduled', stored)
  redis.call('HINCRBY', state, 'buried', stored)
end
return answer
