-- Put parked messages back into the queue, lowest due first, or from somewhere within as probes; and drop the tickets at
-- the head whose messages were cancelled, up to 500. Only in the turn that the caller was told: whatever leaves the set
-- begins the next one, so the same call again does nothing, however late it comes.
-- KEYS: state queue pool parked attempts
-- ARGV: epoch, name of the parked set, its turn ('' = not known), most to move, where to begin (0 = the lowest, up to 1)
-- Returns: {'fenced'} or {'ok', turn of the set now, due and ticket of the lowest one still parked ('' '' '' = none), how many are}
-- @flags allow-oom
-- @empties
-- @include record fence turn
local state, queue, pool, parked, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local field = 'parked:' .. ARGV[2]
local most, begin = tonumber(ARGV[4]), tonumber(ARGV[5])

local function lives(ticket)
  local id = string.sub(ticket, 1, -9)
  local record = redis.call('HGET', pool, id)
  return record and ticket_of(id, record) == ticket
end

local function drop_cancelled()
  local dropped = {}
  repeat
    local looked = redis.call('ZRANGE', parked, #dropped, #dropped + 19)
    local before = #dropped
    for _, ticket in ipairs(looked) do
      if lives(ticket) then
        break
      end
      dropped[#dropped + 1] = ticket
    end
  until #dropped < before + 20 or #dropped >= 500
  if #dropped > 0 then
    redis.call('ZREM', parked, unpack(dropped))
  end
  return #dropped
end

local function move()
  local first = math.floor(math.max(0, redis.call('ZCARD', parked) - most) * begin)
  local entries = redis.call('ZRANGE', parked, first, first + most - 1, 'WITHSCORES')
  local taken, back = {}, {}
  for i = 1, #entries, 2 do
    taken[#taken + 1] = entries[i]
    if lives(entries[i]) then
      back[#back + 1] = entries[i + 1]
      back[#back + 1] = entries[i]
    end
  end
  if #taken > 0 then
    redis.call('ZREM', parked, unpack(taken))
  end
  if #back > 0 then
    redis.call('ZADD', queue, unpack(back))
    local watermark = tonumber(redis.call('HGET', state, 'watermark') or '') or -1
    for i = 1, #back, 2 do
      if tonumber(back[i]) > watermark then -- that came down: nothing else says that this one may have been handed out
        redis.call('HSETNX', attempts, string.sub(back[i + 1], 1, -9), '0')
      end
    end
  end
  return #taken
end

if redis.call('HGET', state, field) == ARGV[3] then
  local left = drop_cancelled() + (most > 0 and move() or 0)
  if left > 0 then
    begin_turn(state, field)
  end
end
return set_now(state, parked, field)
