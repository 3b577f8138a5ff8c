-- Put parked messages back into the queue, lowest due first, or from somewhere within as probes; and drop the tickets at
-- the head whose messages were cancelled, up to 500. The same call again moves the next ones. So an owner that did not hear
-- the answer goes on as the next incarnation, which fences a late call, and pulls again from the head of the queue.
-- KEYS: state queue pool parked attempts
-- ARGV: epoch, name of the parked set, most to move, where to begin (0 = the lowest, up to 1)
-- Returns: {'fenced'} or {'ok', due and ticket of the lowest one still parked ('' '' = none), how many are}
-- @flags allow-oom
-- @empties
-- @include record fence describe_set
local state, queue, pool, parked, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1]) then
  return { 'fenced' }
end
local most, begin = tonumber(ARGV[3]), tonumber(ARGV[4])

local TOGETHER = 20 -- records read by one command: bodies may be large

-- Whether the messages of these tickets are there, in their order.
local function living(tickets)
  local found, ids = {}, {}
  for i, ticket in ipairs(tickets) do
    ids[i] = string.sub(ticket, 1, -9)
  end
  for begins = 1, #tickets, TOGETHER do
    local ends = math.min(begins + TOGETHER - 1, #tickets)
    local records = redis.call('HMGET', pool, unpack(ids, begins, ends))
    for i = begins, ends do
      local record = records[i - begins + 1]
      found[i] = record and ticket_of(ids[i], record) == tickets[i]
    end
  end
  return found
end

local function drop_cancelled()
  local dropped = 0
  repeat
    local before = dropped
    local looked = redis.call('ZRANGE', parked, dropped, dropped + TOGETHER - 1)
    local found = living(looked)
    while dropped - before < #looked and not found[dropped - before + 1] do
      dropped = dropped + 1
    end
  until dropped < before + TOGETHER or dropped >= 500
  if dropped > 0 then
    redis.call('ZREMRANGEBYRANK', parked, 0, dropped - 1)
  end
end

local function move()
  local first = math.floor(math.max(0, redis.call('ZCARD', parked) - most) * begin)
  local entries = redis.call('ZRANGE', parked, first, first + most - 1, 'WITHSCORES')
  local tickets, back = {}, {}
  for i = 1, #entries, 2 do
    tickets[#tickets + 1] = entries[i]
  end
  for i, lives in ipairs(living(tickets)) do
    if lives then
      back[#back + 1] = entries[2 * i]
      back[#back + 1] = tickets[i]
    end
  end
  if #tickets > 0 then
    redis.call('ZREMRANGEBYRANK', parked, first, first + #tickets - 1)
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
end

drop_cancelled()
if most > 0 then
  move()
end
return describe_set(state, parked, 'parked:' .. ARGV[2])
