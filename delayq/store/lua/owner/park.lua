-- Park messages that cannot go on now, because their target accepts nothing or their ordering key has too many. They
-- keep their due time, and no attempt is counted.
-- KEYS: state queue attempts parked.
-- ARGV: epoch, name of the parked set, then for each message: ticket, due time as pulled, attempts as pulled.
-- Returns: {'fenced'}, or {'ok', due time and ticket of the first parked message, number of parked messages}.
--   The due time and ticket are '' if the set is empty.
-- @flags allow-oom
-- @empties
-- @include fence pulled describe_set
local state, queue, attempts, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local gone, set_aside = {}, {}
for i = 3, #ARGV, 3 do
  if as_pulled(queue, attempts, ARGV[i], ARGV[i + 1], ARGV[i + 2]) == 'ok' then
    gone[#gone + 1] = ARGV[i]
    set_aside[#set_aside + 1] = ARGV[i + 1]
    set_aside[#set_aside + 1] = ARGV[i]
  end
end
if #gone > 0 then
  redis.call('ZREM', queue, unpack(gone))
  redis.call('ZADD', parked, unpack(set_aside))
end
return describe_set(state, parked, 'parked:' .. ARGV[2])
