-- Lease messages of a stream to one call of a consumer group.
-- KEYS: consumers, stream, leases, what this call received.
-- ARGV: now, group, this call's name, most messages, lease (ms), start, filter, most leases, name of the consumer.
--   A start is '0', '$' or an entry id; '' makes no group.
--   The filter is '' for everything, else tags, a NUL byte between two. Last the deadline (see include/deadline).
-- Returns: {'filter', the group's own} if that differs. {'unknown'} without a start if there is no such group.
--   Else {'ok', now, end of the next lease or pause or '', messages}.
--   A message is: entry id, leases, hand-backs, '1' if it has had too many leases, the reasons so far, its fields.
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local consumers, stream, leases, received = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, group, call, most = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local life, start, filter, most_leases, name = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

-- @include lanes
local MOST_WAITING = 100 -- with so many waiting entries nothing new is read
local LOOK = 500 -- ms after which a call should look again if entries wait for their lanes

local known, waits = unpack(redis.call('HMGET', consumers, 'filter', 'waiting'))
if not known and start == '' then
  return { 'unknown' }
elseif not known then
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
  if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
    return made
  end
  redis.call('HSET', consumers, 'filter', filter)
elseif known ~= filter then
  return { 'filter', known }
end

local wanted = {}
for tag in string.gmatch(filter, '[^%z]+') do
  wanted[tag] = true
end

-- Whether an entry is for the group: it matches the filter, and no other group had given it up before it was redriven.
-- Also return the name of its lane, or ''.
local function matches(fields)
  local tags, topic, lane = '', '', ''
  for i = 1, #fields, 2 do
    if fields[i] == 'tags' then
      tags = fields[i + 1]
    elseif fields[i] == 'topic' then
      topic = fields[i + 1]
    elseif fields[i] == 'orderingKey' then
      lane = string.sub(redis.sha1hex(topic .. '\0' .. fields[i + 1]), 1, 16)
    elseif fields[i] == 'p:' .. name .. '-group' and fields[i + 1] ~= group then
      return false
    end
  end
  return filter == '' or wanted[tags] or false, lane
end

local answer, taken = { 'ok', digits(now), '' }, {}
local is_more = false -- there may be more entries, and this call has looked at enough of them

-- Add an entry to the answer, and lease it.
local function add(id, fields, count, backs, lane, reasons)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = id, count, backs
  answer[n + 4], answer[n + 5], answer[n + 6] = count - backs > most_leases and '1' or '', reasons, fields
  taken[#taken + 1] = id
  set_state(id, 'L', call, count, backs, lane, reasons)
  set_end(id, lane, digits(now + life))
end

-- Lease a free entry, or forget it if the stream was trimmed.
local function take(id, how, count, backs, lane, reasons)
  local entry = how and redis.call('XRANGE', stream, id, id)[1]
  if how == 'H' then
    handed_back = handed_back - 1
  end
  if entry then
    add(id, entry[2], tonumber(count) + 1, tonumber(backs), lane, reasons)
  else
    forget(id, lane)
  end
end

-- Whether another call has a lease in a lane.
local function is_held(lane)
  for first = 1, #lane.ids, 1000 do
    local stops = redis.call('ZMSCORE', leases, unpack(lane.ids, first, math.min(first + 999, #lane.ids)))
    for _, stop in ipairs(stops) do
      if stop and tonumber(stop) > now then
        return true
      end
    end
  end
  return false
end

-- Lease the entries of a lane in their order. If another call has a lease in the lane, the free entry waits for it.
local function take_lane(id, name)
  local lane = lane_of(name)
  if lane.is_own then
    return
  end
  join_lane(lane, id) -- it is a new member if it was handed back
  if lane.is_held == nil then
    lane.is_held = is_held(lane)
  end
  if lane.is_held then
    waiting = waiting + redis.call('ZREM', leases, id)
    return
  end
  lane.holder, lane.is_own, lane.changed = call, true, true
  local at = 1
  while at <= #lane.ids and #taken < most do
    local one = lane.ids[at]
    local how, _, count, backs, _, reasons = state_of(one)
    take(one, how, count, backs, name, reasons)
    if lane.ids[at] == one then
      at = at + 1
    end
  end
end

-- Lease a new entry of a lane, or let it wait behind those of another call.
local function join(id, fields, name)
  local lane = lane_of(name)
  waiting = waiting + 1
  if #lane.ids == 0 or lane.is_own then
    lane.holder, lane.is_own = call, true
    add(id, fields, 1, 0, name, '')
  else
    set_state(id, 'W', '/', 0, 0, name, '') -- no call has this name
  end
  join_lane(lane, id)
end

local before = redis.call('GET', received)
if before then -- the reply was lost: the same messages, as far as this call still has their leases
  for id in string.gmatch(before, '[^ ]+') do
    local how, by, count, backs, lane, reasons = state_of(id)
    local is_own = how == 'L' and by == call and (lane == '' or lane_of(lane).holder == call)
    local entry = is_own and redis.call('XRANGE', stream, id, id)[1]
    if entry then
      add(id, entry[2], tonumber(count), tonumber(backs), lane, reasons)
    end
  end
else
  local looked = 0 -- a call looks at a bounded number of entries
  repeat
    local left = most - #taken
    local free = redis.call('ZRANGE', leases, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, left)
    for _, id in ipairs(free) do
      if #taken == most then
        break
      end
      local how, _, count, backs, lane, reasons = state_of(id)
      if (lane or '') ~= '' then
        take_lane(id, lane)
      else
        take(id, how, count, backs, '', reasons)
      end
    end
    looked = looked + #free
  until #taken == most or #free < left or looked >= 2000
  -- An entry that does not match is acknowledged unseen.
  while #taken < most and looked < 2000 and (tonumber(waits or '') or 0) + waiting < MOST_WAITING do
    local left = most - #taken
    local read = redis.call('XREADGROUP', 'GROUP', group, name, 'COUNT', left, 'STREAMS', stream, '>')
    local entries = read and read[1][2] or {}
    for _, entry in ipairs(entries) do
      local fits, lane = matches(entry[2])
      if not fits then
        redis.call('XACK', stream, group, entry[1])
      elseif lane == '' then
        add(entry[1], entry[2], 1, 0, '', '')
      else
        join(entry[1], entry[2], lane)
      end
    end
    looked = looked + #entries
    if #entries < left then
      break
    end
  end
  is_more = #taken < most and looked >= 2000
  if #taken > 0 then
    redis.call('SET', received, table.concat(taken, ' '), 'PX', digits(math.max(life, 60000)))
  end
end
local next_end = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
if next_end and (tonumber(waits or '') or 0) + waiting > 0 then
  next_end = digits(math.min(tonumber(next_end), now + LOOK)) -- a lane may become free before a lease ends
end
answer[3] = is_more and digits(now) or next_end or ''
write_lanes()
return answer
