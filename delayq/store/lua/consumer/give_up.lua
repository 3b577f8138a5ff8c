-- Store messages that the consumers of a group gave up. Each is a dead letter at once, with the reasons of the consumers.
-- KEYS: state pool keys dead reasons
-- ARGV: now. Then of each message: id, content (see codec.py), deliveries, reason, a property as it is in the content. Last the
--   deadline (see include/deadline). A message of the id with the same topic, property and body was given up before.
-- Returns: for each 'dead' (now, or it is one already), 'waiting' (it was redriven, and waits), or 'moved'.
--   'taken' means that another message has this id.
-- @promise
-- @include clock deadline record generation closed
local state, pool, index, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local answer, stored, generation = {}, 0, nil
for i = 2, #ARGV, 5 do
  local id = ARGV[i]
  local known = redis.call('HGET', pool, id)
  if known then
    local given = string.rep('0', MARK) .. ARGV[i + 1]
    local topic_end, _, _, _, _, body_at, body_end = fields(given)
    local known_topic_end, _, _, _, keys_end, known_body_at, known_body_end = fields(known)
    local is_same = known_topic_end
      and string.sub(known, FIELDS, known_topic_end) == string.sub(given, FIELDS, topic_end)
      and string.find(string.sub(known, keys_end + 1, known_body_at), ARGV[i + 4], 1, true)
      and string.sub(known, known_body_at + 1, known_body_end) == string.sub(given, body_at + 1, body_end)
    answer[#answer + 1] = not is_same and 'taken' or redis.call('ZSCORE', dead, id) and 'dead' or 'waiting'
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
