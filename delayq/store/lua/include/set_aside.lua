-- Move the messages that `look` listed into the sets of their topics. They are still in `source`, too. `held_now`
-- describes each such set whose topic is not paused, because the owner has to release its messages. It has the name,
-- due time and ticket of the earliest message, and the number of tickets.
local held_now = {}
if #aside > 0 then
  local moved, by_topic = {}, {}
  for i = 1, #aside, 2 do
    moved[#moved + 1] = aside[i]
  end
  local dues = redis.call('ZMSCORE', source, unpack(moved))
  for i, ticket in ipairs(moved) do
    local topic = aside[2 * i]
    local members = by_topic[topic] or {}
    by_topic[topic] = members
    members[#members + 1], members[#members + 2] = dues[i], ticket
  end
  for topic, members in pairs(by_topic) do
    local set = sub(state, 1, -6) .. 'parked:h:' .. topic
    redis.call('ZADD', set, unpack(members))
    redis.call('HSETNX', state, 'parked:h:' .. topic, '0')
    if not is_paused(topic) then
      local first, n = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES'), #held_now
      held_now[n + 1], held_now[n + 2], held_now[n + 3] = 'h:' .. topic, first[2], first[1]
      held_now[n + 4] = redis.call('ZCARD', set)
    end
  end
  if not some_held then
    redis.call('HSET', state, 'held', '1')
  end
end
