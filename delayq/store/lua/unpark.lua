-- Put parked messages back into the queue, lowest due first, or from somewhere within as probes. A ticket without its record was cancelled: dropped.
-- KEYS: state queue pool parked guard
-- ARGV: epoch, name of the parked set, most to move, where to begin (0 = the lowest, up to 1)
-- Returns: {'fenced'} or {'ok', how many were moved, the lowest due moved ('' = none),
--          due and ticket of the lowest one still parked ('' '' = none)}
-- @flags allow-oom
-- @empties
-- @include fence
local state, queue, pool, parked, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if fenced(state, guard, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local moved, lowest, taken, back = 0, '', {}, {}
local most = tonumber(ARGV[3])
local first = math.floor(math.max(0, redis.call('ZCARD', parked) - most) * tonumber(ARGV[4]))
local entries = redis.call('ZRANGE', parked, first, first + most - 1, 'WITHSCORES')
for i = 1, #entries, 2 do
  local ticket = entries[i]
  local record = redis.call('HGET', pool, string.sub(ticket, 1, -9))
  taken[#taken + 1] = ticket
  if record and string.sub(record, 1, 7) == string.sub(ticket, -7) then
    if moved == 0 then
      lowest = entries[i + 1]
    end
    moved = moved + 1
    back[#back + 1] = entries[i + 1]
    back[#back + 1] = ticket
  end
end
if moved > 0 then
  redis.call('ZADD', queue, unpack(back))
  redis.call('HINCRBY', guard, 'changes', 1) -- they may stand among those that are about to be appended
end
if #taken > 0 then
  redis.call('ZREM', parked, unpack(taken))
end
local head = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
if not head[1] then
  redis.call('HDEL', state, 'parked:' .. ARGV[2])
end
return { 'ok', moved, lowest, head[2] or '', head[1] or '' }
