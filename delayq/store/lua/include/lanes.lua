-- The entries of one ordering key of a topic are a lane. While one call has a lease in a lane, no other call gets one.
-- The record of a lane has the call that leased from it last. Then it has the ids of its entries in the order of the
-- stream. An entry that was handed back is not among them before its pause ends.
-- A free entry waits outside of `leases` while another one of its lane is leased. `waiting` counts such entries.
-- `handed_back` counts the entries that were handed back or released.
-- All entries without an ordering key that a call receives first have one record: the field `call:<call>`, and a member
-- of this name in `leases`. The record has the number of its entries, then their ids. Redis knows only the first of them as
-- pending, so that a trim keeps them all. `inCalls` counts the other ones. Such a record ends when all of it is
-- acknowledged at once. Any other change of one of its entries first splits it into a record for each entry.
-- A call may be repeated. `left:<call>` counts the entries that it has leased and that have a record of their own. As long as
-- there is one, `received:<call>` has the ids of all entries that the call received, in the order of its answer.
-- `foreign` has the number of skipped entries, which delayq did not write. The time, id and reason of the last one follow.
-- Here the counts are what this script adds.
local lanes, waiting, handed_back, in_calls, left = {}, 0, 0, 0, {}

-- Read the record of an entry: its state, its call, its leases, its hand-backs, its lane or '', and its reasons. The state is
-- 'L' (leased), 'H' (handed back or released) or 'W'. The latter waits for its lane or the next call, and was never leased.
local function parse(record)
  return string.match(record or '', '^(%u) (%S+) (%d+) (%d+)=?(%x*) (.*)$')
end

-- The reasons of an entry are lines, none of them empty. Then an empty line may follow, with the call that handed the entry
-- back or released it last, and the end of that pause. There is no end after the last hand-back, because the caller makes
-- the entry a dead letter. Return the reasons, the call and the end.
local function last_back(reasons)
  local own, call, stop = string.match(reasons, '^(.-)\n\n(%S+) (%d*)$')
  return own or reasons, call, stop
end

-- Return nothing for an entry that was acknowledged or trimmed.
local function state_of(id)
  return parse(redis.call('HMGET', consumers, id)[1])
end

-- Count the entries with records of their own that a call leases, or, with -1, that leave it.
local function count_left(call, count)
  left[call] = (left[call] or 0) + count
end

-- Make entries pending without reading them.
local function add_pending(ids)
  for first = 1, #ids, 1000 do
    local words = { unpack(ids, first, math.min(first + 999, #ids)) }
    words[#words + 1], words[#words + 2] = 'FORCE', 'JUSTID'
    redis.call('XCLAIM', stream, group, name, '0', unpack(words))
  end
end

-- Replace the record of a call by a record for each entry, with the same lease. Return the ids.
local function split_call(call, record)
  local field, ids = 'call:' .. call, {}
  local stop = redis.call('ZSCORE', leases, field) or '0'
  for id in string.gmatch(record, '%d+%-%d+') do
    ids[#ids + 1] = id
  end
  for first = 1, #ids, 1000 do
    local states, ends = {}, {}
    for at = first, math.min(first + 999, #ids) do
      states[#states + 1], states[#states + 2] = ids[at], 'L ' .. call .. ' 1 0 '
      ends[#ends + 1], ends[#ends + 2] = stop, ids[at]
    end
    redis.call('HSET', consumers, unpack(states))
    redis.call('ZADD', leases, unpack(ends))
  end
  add_pending(ids)
  redis.call('HDEL', consumers, field)
  redis.call('ZREM', leases, field)
  in_calls = in_calls - #ids + 1
  count_left(call, #ids)
  redis.call('HSETNX', consumers, 'received:' .. call, table.concat(ids, ' '))
  return ids
end

local function set_state(id, how, call, count, backs, lane, reasons)
  local mark = lane == '' and ' ' or '=' .. lane .. ' '
  redis.call('HSET', consumers, id, how .. ' ' .. call .. ' ' .. count .. ' ' .. backs .. mark .. reasons)
end

local function lane_of(name)
  local lane = lanes[name]
  if not lane then
    lane = { ids = {} }
    for word in string.gmatch(redis.call('HMGET', consumers, 'lane:' .. name)[1] or '', '%S+') do
      if lane.holder then
        lane.ids[#lane.ids + 1] = word
      else
        lane.holder = word
      end
    end
    lanes[name] = lane
  end
  return lane
end

-- Let the lease or the pause of an entry end at a time.
local function set_end(id, lane, stop)
  local added = redis.call('ZADD', leases, stop, id)
  if lane ~= '' then
    waiting = waiting - added
  end
end

-- @include is_before
-- Add an entry to the ids of its lane.
local function join_lane(lane, id)
  local at = #lane.ids + 1
  while at > 1 and is_before(id, lane.ids[at - 1]) do
    at = at - 1
  end
  if lane.ids[at - 1] ~= id then
    table.insert(lane.ids, at, id)
    lane.changed = true
  end
end

local function leave_lane(lane, id)
  for at, one in ipairs(lane.ids) do
    if one == id then
      table.remove(lane.ids, at)
      lane.changed = true
      return
    end
  end
end

local function forget(id, lane, how, call)
  redis.call('XACK', stream, group, id)
  redis.call('HDEL', consumers, id)
  local removed = redis.call('ZREM', leases, id)
  if how == 'L' then
    count_left(call, -1)
  end
  if lane ~= '' then
    waiting = waiting - 1 + removed
    leave_lane(lane_of(lane), id)
  end
end

-- Write the changed lanes and the counts. Forget what a call received once it has nothing left.
local function write_lanes()
  for call, count in pairs(left) do
    if redis.call('HINCRBY', consumers, 'left:' .. call, count) <= 0 then
      redis.call('HDEL', consumers, 'left:' .. call, 'received:' .. call)
    end
  end
  for name, lane in pairs(lanes) do
    if lane.changed and #lane.ids == 0 then
      redis.call('HDEL', consumers, 'lane:' .. name)
    elseif lane.changed then
      redis.call('HSET', consumers, 'lane:' .. name, lane.holder .. ' ' .. table.concat(lane.ids, ' '))
    end
  end
  if waiting ~= 0 then
    redis.call('HINCRBY', consumers, 'waiting', waiting)
  end
  if handed_back ~= 0 then
    redis.call('HINCRBY', consumers, 'handedBack', handed_back)
  end
  if in_calls ~= 0 then
    redis.call('HINCRBY', consumers, 'inCalls', in_calls)
  end
end
