-- Lease messages of a stream to one call of a consumer group.
-- KEYS: consumers, stream, leases
-- ARGV: now, group, this call's name, most messages, lease (ms), start, filter, most leases, name of the consumer.
--   A call of several streams adds most bytes, and how many messages may exceed them (0 or 1).
--   A start is '0', '$' or an entry id; '' makes no group. With 0 as most messages only a repeated call receives.
--   The filter is '' for everything, else tags, a NUL byte between two. Last the deadline (see include/deadline).
-- Returns: {'filter', the group's own} if that differs. {'unknown', the id of the last entry} without a start if the stream
--   has no such group. Else {'ok', now, end of the next lease or pause or '', names, messages, making of the group}.
--   The names are those of the fields if all messages have the same ones, and none was received before. Then a message is
--   its entry id and the values of its fields. Without names a message is: entry id, leases, hand-backs, '1' if it has had
--   too many leases, the reasons so far, its fields.
-- @flags allow-oom
-- @promise
-- @empties
-- @first HMGET TIME XINFO XPENDING ZRANGE
-- @include clock deadline
local consumers, stream, leases = KEYS[1], KEYS[2], KEYS[3]
local now, group, call, most = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local life, start, filter, most_leases, name = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local most_bytes, least = tonumber(ARGV[10] or '2000000'), tonumber(ARGV[11] or '1')

-- @include lanes
local MOST_WAITING = 100 -- with so many waiting entries nothing new is read
local FIRST, PORTION = 10, 40 -- so many entries are read first, and at once: their sizes are not known before
local MOST_LOOKED = 2000 -- a call looks at no more entries
local LOOK = 500 -- ms after which a call should look again if entries wait for their lanes

local known, waits, own, received, making, adopted =
  unpack(redis.call('HMGET', consumers, 'filter', 'waiting', 'call:' .. call, 'received:' .. call, 'making', 'adopted'))
local first_end = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
local repeated = received or own
waits = tonumber(waits or '') or 0
local is_changed = repeated or adopted or first_end and tonumber(first_end) <= now -- not only new entries get leases
if is_changed then
  -- @guard HDEL HSETNX XACK XPENDING XRANGE XREADGROUP ZMSCORE ZREM ZSCORE
end

-- Return the answer about a stream that does not have the group, or the error of a key of another type.
local function unknown()
  local info = redis.pcall('XINFO', 'STREAM', stream)
  if info.err and not string.find(info.err, 'no such key', 1, true) then
    return info
  end
  local last = '0-0'
  for i = 1, #info, 2 do
    last = info[i] == 'last-generated-id' and info[i + 1] or last
  end
  return { 'unknown', last }
end

-- Whether an error is that the group is gone: somebody destroyed it, or deleted or renamed its stream.
local function is_gone(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'NOGROUP', 1, true)
end

local is_lost = false -- what the group received before it was gone counts no longer
if known and (is_changed or start ~= '' or most == 0) then
  local pending = redis.pcall('XPENDING', stream, group)
  if is_gone(pending) then
    is_lost, known, waits, own, received, adopted = true, nil, 0, nil, nil, nil
    repeated, first_end, is_changed = nil, nil, nil
  elseif pending.err then
    return pending
  end
end
if not known and start == '' then
  return unknown()
elseif not known then
  -- @guard HDEL HSETNX PEXPIRE XACK XPENDING XRANGE XREADGROUP ZMSCORE ZREM ZSCORE
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
  if type(made) == 'table' and made.err then
    if not string.find(made.err, 'BUSYGROUP', 1, true) then
      return made
    end
    adopted, is_changed = '-', true -- others used the group before, and may have left pending entries
  end
  if is_lost or adopted then
    redis.call('PEXPIRE', consumers, 0)
    redis.call('PEXPIRE', leases, 0)
  end
  known, making = filter, nil
elseif known ~= filter then
  return { 'filter', known }
end
if not making then -- leases name it, so that no other group takes them for its own
  making = string.sub(redis.sha1hex(table.concat({ stream, group, call, digits(now) }, '\0')), 1, 8)
  redis.call('HSET', consumers, 'filter', filter, 'making', making)
  if adopted then
    redis.call('HSET', consumers, 'adopted', adopted)
  end
end

local wanted = {}
for tag in string.gmatch(filter, '[^%z]+') do
  wanted[tag] = true
end

local before -- the fields of the entry before
local key_at, topic_at, tags_at, own_at -- where these have their values
local sized = {} -- where the fields have their values that may be long
local is_alike = most_leases >= 1 -- all messages have the same names of fields, and none was received before
local own_group = 'p:' .. name .. '-group'

-- Note where an entry has its fields, unless they are those of the entry before.
local function look(fields)
  local last = before
  local is_same = last and #last == #fields
  for i = 1, is_same and #fields or 0, 2 do
    if last[i] ~= fields[i] then
      is_same = false
      break
    end
  end
  if is_same then
    return
  end
  is_alike, before, sized = is_alike and not last, fields, {}
  local at = {}
  for i = 1, #fields, 2 do
    local field = fields[i]
    at[field] = i + 1
    if field ~= 'id' and field ~= 'topic' and field ~= 'due' and field ~= 'attempt' then
      sized[#sized + 1] = i + 1
    end
  end
  key_at, topic_at, tags_at, own_at = at.orderingKey, at.topic, at.tags, at[own_group]
end

-- Whether an entry is for the group: it matches the filter, and no other group had given it up before it was redriven.
-- Also return the name of its lane, or ''.
local function matches(fields)
  look(fields)
  local lane = ''
  if own_at and fields[own_at] ~= group then
    return false
  elseif key_at then
    lane = string.sub(redis.sha1hex((fields[topic_at] or '') .. '\0' .. fields[key_at]), 1, 16)
  end
  return filter == '' or wanted[fields[tags_at] or ''] or false, lane
end

local taken, contents, details = {}, {}, {} -- the ids and the fields of the messages, and what makes them differ from new ones
local fresh, pending = {}, {} -- the ids in the record of this call, and those that Redis does not yet know as pending
local looked = 0 -- so many entries
local bytes, is_full = 0, false

-- Whether the answer has room for a message, after `look` at it. Once one does not fit, no other one is taken.
local function has_room(fields)
  local size, places = 0, sized
  for i = 1, #places do
    size = size + #fields[places[i]]
  end
  is_full = is_full or bytes + size > most_bytes and #taken >= least
  bytes = bytes + size
  return not is_full
end

-- Add an entry to the answer, and lease it.
local function add(id, fields, count, backs, lane, reasons)
  local n = #taken + 1
  count_left(call, 1)
  taken[n], contents[n], details[n] = id, fields, { count, backs, (last_back(reasons)) }
  set_state(id, 'L', call, count, backs, lane, reasons)
  set_end(id, lane, digits(now + life))
end

-- Lease a free entry, if the answer has room for it, or forget it if the stream was trimmed. Return whether it is leased.
local function take(id, how, by, count, backs, lane, reasons)
  local entry = how and redis.call('XRANGE', stream, id, id)[1]
  if entry then
    look(entry[2])
    if not has_room(entry[2]) then
      return false
    end
  end
  if how == 'H' then
    handed_back = handed_back - 1
  end
  if entry then
    is_alike = false
    if how == 'L' then
      count_left(by, -1)
    end
    local own, before = last_back(reasons)
    if before == call then -- the name is used again: what this call did with the entry before is no answer for this lease
      reasons = own
    end
    add(id, entry[2], tonumber(count) + 1, tonumber(backs), lane, reasons)
  else
    forget(id, lane, how, by)
  end
  return entry
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
    local how, by, count, backs, _, reasons = state_of(id)
    if how == 'H' then -- it was handed back like another one of the lane
      join_lane(lane, id)
      take(id, how, by, count, backs, name, reasons)
    end
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
  local at = 1
  while at <= #lane.ids and #taken < most and not is_full do
    local one = lane.ids[at]
    local how, by, count, backs, _, reasons = state_of(one)
    if take(one, how, by, count, backs, name, reasons) then
      lane.holder, lane.is_own, lane.changed = call, true, true
    end
    if lane.ids[at] == one then
      at = at + 1
    end
  end
end

-- Lease a new entry of a lane, or let it wait behind those of another call. If the answer has no room for it, it is free.
-- Here and below, `count` is how often consumers of Redis received it before, 0 for an entry that is really new.
local function join(id, fields, name, fits, count)
  local lane = lane_of(name)
  waiting = waiting + 1
  if fits and (#lane.ids == 0 or lane.is_own) then
    lane.holder, lane.is_own = call, true
    add(id, fields, count + 1, 0, name, '')
  else
    set_state(id, 'W', '/', count, 0, name, '') -- no call has this name
    if #lane.ids == 0 then
      lane.holder = '/'
      set_end(id, name, digits(now))
    end
  end
  pending[#pending + 1] = id
  join_lane(lane, id)
end

-- Read pending entries that consumers of Redis left, from `adopted` on: their leases have ended. Return them with how often
-- each was received, and whether there may be more. delayq reads new entries after all of these, so none of them is its own.
local function adopt(count)
  local found = redis.pcall('XPENDING', stream, group, adopted, '+', count)
  if found.err then
    return found
  end
  local entries = {}
  for place, one in ipairs(found) do
    local received = math.max(0, math.min(one[4], 1000000)) -- XCLAIM sets it to any number
    entries[place] = { one[1], (redis.call('XRANGE', stream, one[1], one[1])[1] or {})[2], received }
  end
  if #found < count then
    adopted = nil
    redis.call('HDEL', consumers, 'adopted')
  else
    adopted = '(' .. found[count][1]
    redis.call('HSET', consumers, 'adopted', adopted)
  end
  return entries
end

-- Read new entries.
local function read_new(count)
  local read = redis.pcall('XREADGROUP', 'GROUP', group, name, 'COUNT', count, 'NOACK', 'STREAMS', stream, '>')
  return read and (read.err and read or read[1][2]) or {}
end

-- Lease the entries of another call whose lease has ended.
local function take_call(other, field)
  local ids = split_call(other, redis.call('HMGET', consumers, field)[1] or '')
  for place = 1, math.min(#ids, most - #taken) do
    if not is_full then
      take(ids[place], 'L', other, 1, 0, '', '')
    end
  end
  looked = looked + #ids
end

-- The steps of a call follow. They are no functions: to make one costs the server up to 1 µs.

-- If the reply was lost, a repeated call gets the same messages, as far as it still has their leases.
if repeated then
  local in_record = {}
  for id in string.gmatch(own or '', '%d+%-%d+') do
    in_record[id] = true
  end
  for id in string.gmatch(received or own, '%d+%-%d+') do
    local how, by, count, backs, lane, reasons
    if not in_record[id] then
      how, by, count, backs, lane, reasons = state_of(id)
    end
    local is_own = in_record[id] or how == 'L' and by == call and (lane == '' or lane_of(lane).holder == call)
    local entry = is_own and redis.call('XRANGE', stream, id, id)[1]
    if entry and how then
      is_alike = false
      count_left(call, -1)
      add(id, entry[2], tonumber(count), tonumber(backs), lane, reasons)
    elseif entry then
      look(entry[2])
      taken[#taken + 1], contents[#contents + 1] = id, entry[2]
    end
  end
  if own then
    redis.call('ZADD', leases, digits(now + life), 'call:' .. call)
  end
end
local is_new = #taken == 0 -- a new call, or one that holds nothing any more
if is_new and own then -- its entries were deleted from the stream
  split_call(call, own)
end

-- Lease the entries whose lease or pause has ended, and those that wait for the next call.
local has_free = is_new and is_changed
while has_free do
  local left = most - #taken
  local free = redis.call('ZRANGE', leases, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, left)
  for _, id in ipairs(free) do
    if #taken == most or looked >= MOST_LOOKED or is_full then
      break
    end
    looked = looked + 1
    local of_call = string.match(id, '^call:(.+)$')
    local how, by, count, backs, lane, reasons = state_of(id)
    if of_call then
      take_call(of_call, id)
    elseif (lane or '') ~= '' then
      take_lane(id, lane)
    else
      take(id, how, by, count, backs, '', reasons)
    end
  end
  has_free = #free == left and #taken < most and looked < MOST_LOOKED and not is_full
end

-- Lease new entries. An entry that does not match the filter is never pending: nobody has to acknowledge it.
local portion = FIRST
while is_new and #taken < most and looked < MOST_LOOKED and not is_full and waits + waiting < MOST_WAITING do
  local count = math.min(most - #taken, portion)
  local is_adopting = adopted
  local entries = is_adopting and adopt(count) or read_new(count)
  if entries.err then
    return is_gone(entries) and unknown() or entries
  end
  for i = 1, #entries do
    local entry = entries[i]
    local id, fields, count = entry[1], entry[2], entry[3]
    local is_wanted, lane
    if fields then -- it was not deleted from the stream
      is_wanted, lane = matches(fields)
    end
    local fits = is_wanted and has_room(fields)
    if fits and lane == '' and not is_adopting then
      local n = #taken + 1
      taken[n], contents[n], fresh[#fresh + 1] = id, fields, id
    elseif fits and lane == '' then
      is_alike = false
      add(id, fields, count + 1, 0, '', '')
      pending[#pending + 1] = id
    elseif is_wanted and lane == '' then -- the answer has no room for it: the next call leases it
      set_state(id, 'W', '/', count or 0, 0, '', '')
      set_end(id, '', digits(now))
      pending[#pending + 1] = id
    elseif is_wanted then
      is_alike = is_alike and not is_adopting
      join(id, fields, lane, fits, count or 0)
    elseif is_adopting then
      redis.call('XACK', stream, group, id)
    end
  end
  looked = looked + #entries
  if #entries < count and not is_adopting then
    break
  end
  portion = math.min(2 * portion, PORTION)
end

-- Write the record of the call, so that a repeat of it finds its messages.
if #fresh > 0 then
  pending[#pending + 1] = fresh[1]
  in_calls = in_calls + #fresh - 1
  redis.call('HSET', consumers, 'call:' .. call, #fresh .. ' ' .. table.concat(fresh, ' '))
  redis.call('ZADD', leases, digits(now + life), 'call:' .. call)
end
add_pending(pending)
if is_new and (#taken > #fresh or #taken > 0 and repeated) then
  redis.call('HSET', consumers, 'received:' .. call, table.concat(taken, ' '))
end

-- Find when the caller should look again: at once if there may be more entries, else when a lease or a pause ends.
local next_look = first_end
if is_full or #taken < most and looked >= MOST_LOOKED then
  next_look = digits(now)
elseif is_changed then
  next_look = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
elseif #taken > 0 then
  next_look = digits(math.min(tonumber(first_end or '') or now + life, now + life))
end
if next_look and waits + waiting > 0 then
  next_look = digits(math.min(tonumber(next_look), now + LOOK)) -- a lane may become free before a lease ends
end
write_lanes()

local names, messages = {}, {}
if is_alike and #taken > 0 then
  for i = 1, #before, 2 do
    names[#names + 1] = before[i]
  end
  local n = 0
  for place, id in ipairs(taken) do
    local fields = contents[place]
    n = n + 1
    messages[n] = id
    for i = 2, #fields, 2 do
      n = n + 1
      messages[n] = fields[i]
    end
  end
else
  for place, id in ipairs(taken) do
    local n, count, backs, reasons = #messages, unpack(details[place] or { 1, 0, '' })
    messages[n + 1], messages[n + 2], messages[n + 3] = id, count, backs
    messages[n + 4], messages[n + 5] = count - backs > most_leases and '1' or '', reasons
    messages[n + 6] = contents[place]
  end
end
return { 'ok', digits(now), next_look or '', names, messages, making }
