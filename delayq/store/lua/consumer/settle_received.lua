-- Acknowledge, extend, hand back or skip messages that calls of a consumer group have leased.
-- KEYS: consumers, stream, leases
-- ARGV: now, group, most hand-backs, pauses after the first hand-back, the second, ... (ms, a space between two), name of the
--   consumer. Then of each: 'ack' | 'extend' | 'back' | 'release' | 'skip', entry ids (a space between two), call of the lease,
--   ms, reason. The ms are those of the new lease, or of the pause; '' means the next pause of the list. Instead of a reason, 'ack'
--   has the making of the group that the lease names, or '*' for any. Last the deadline (see include/deadline).
-- Returns: {now, then of each 'ok' if it acknowledged all of its entries, else a list}. The list has of each entry:
--   'ok' | 'lost' | 'exhausted', when the lease or the pause ends or the reasons. 'unknown': the stream has no such group.
-- @flags allow-oom
-- @promise
-- @empties
-- @first HGET TIME
-- @include clock deadline
local consumers, stream, leases = KEYS[1], KEYS[2], KEYS[3]
local now, group, most_backs, name = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[5]
-- @include lanes
local MORE = 10 -- reasons that are kept beyond the most hand-backs, while the dead letter cannot be stored
local answer, pauses = { digits(now) }, {}
for pause in string.gmatch(ARGV[4], '%d+') do
  pauses[#pauses + 1] = tonumber(pause)
end

local has_group -- whether the stream has the group; without it, all leases are lost
local function is_there()
  if has_group == nil then
    local err = redis.pcall('XPENDING', stream, group).err
    has_group = not (err and (string.find(err, 'NOGROUP', 1, true) or string.find(err, 'WRONGTYPE', 1, true)))
    if err and has_group then
      redis.call('XPENDING', stream, group) -- fails again
    end
  end
  return has_group
end

-- Return the result for an entry that no call has. It is ok to repeat an acknowledgement. But a lease of another group, or of
-- this one before it was deleted, was never acknowledged here.
local own_making
local function result_of_none(act, making)
  if own_making == nil then
    local filter
    filter, own_making = unpack(redis.call('HMGET', consumers, 'filter', 'making'))
    own_making = own_making or filter and ''
  end
  if not own_making then
    return 'unknown'
  end
  return act == 'ack' and (making == own_making or making == '*') and is_there() and 'ok' or 'lost'
end

local function settle(act, id, call, ms, reason)
  local how, by, count, backs, lane, reasons = state_of(id)
  if not how and act == 'skip' then
    return 'ok', '' -- the same call again
  elseif not how or not is_there() then -- without the group, its leases are lost
    return result_of_none(act, not how and reason), ''
  end
  local own, before, first_stop = last_back(reasons)
  local is_repeat = before == call and (act == 'back' or act == 'release')
  if is_repeat and first_stop ~= '' then
    return 'ok', first_stop -- also if another call has the entry now
  elseif by ~= call then
    return 'lost', ''
  elseif how == 'H' and act ~= 'ack' then -- the same call again, of a version that did not remember it
    return (act == 'back' or act == 'release') and 'ok' or 'lost', redis.call('ZSCORE', leases, id) or ''
  elseif how == 'H' or lane ~= '' and lane_of(lane).holder ~= call then
    return 'lost', '' -- in a lane, another call may hold an earlier entry now
  elseif is_repeat then
    return 'exhausted', own
  elseif act == 'skip' then -- delayq did not write it: no consumer can have it
    local known = redis.call('HMGET', consumers, 'foreign')[1]
    local number = tonumber(string.match(known or '', '^%d+') or '0') + 1
    redis.call('HSET', consumers, 'foreign', table.concat({ digits(number), digits(now), id, reason }, ' '))
    forget(id, lane, how, call)
    return 'ok', ''
  elseif act == 'ack' then
    forget(id, lane, how, call)
    return 'ok', ''
  elseif act == 'release' then -- it was not handled, so this lease does not count
    set_state(id, 'H', call, count - 1, backs, lane, own .. '\n\n' .. call .. ' ' .. digits(now))
    count_left(call, -1)
    handed_back = handed_back + 1
    set_end(id, lane, digits(now))
    return 'ok', digits(now)
  end
  local stop
  if act == 'back' then
    backs = tonumber(backs) + 1
    ms = ms or pauses[math.min(backs, #pauses)]
    if backs > most_backs + MORE then
      own = string.match(own, '\n(.*)') or ''
    end
    own = (own == '' and '' or own .. '\n') .. reason
    if backs > most_backs then -- the caller makes it a dead letter, then acknowledges it. If that fails, the reasons stay
      set_state(id, 'L', call, count, backs, lane, own .. '\n\n' .. call .. ' ')
      return 'exhausted', own
    end
    stop = digits(now + ms)
    set_state(id, 'H', call, count, backs, lane, own .. '\n\n' .. call .. ' ' .. stop)
    count_left(call, -1)
    handed_back = handed_back + 1
  end
  stop = stop or digits(now + ms)
  set_end(id, lane, stop)
  if act == 'back' and lane ~= '' then
    leave_lane(lane_of(lane), id) -- later entries pass it
  end
  return 'ok', stop
end

-- Acknowledge entries of a call. Return the result of each, or 'ok' for all of them.
local function acknowledge(ids, call, making)
  local results, are_ok = {}, true
  for first = 1, #ids, 1000 do
    local some, done = { unpack(ids, first, math.min(first + 999, #ids)) }, {}
    for place, record in ipairs(redis.call('HMGET', consumers, unpack(some))) do
      local how, by, _, _, lane = parse(record)
      local n = #results
      if how == 'L' and by == call and lane == '' and is_there() then
        done[#done + 1] = some[place]
        results[n + 1], results[n + 2] = 'ok', ''
      else
        results[n + 1], results[n + 2] = settle('ack', some[place], call, nil, making)
        are_ok = are_ok and results[n + 1] == 'ok'
      end
    end
    if #done > 0 then
      redis.call('XACK', stream, group, unpack(done))
      redis.call('HDEL', consumers, unpack(done))
      redis.call('ZREM', leases, unpack(done))
      count_left(call, -#done)
    end
  end
  return are_ok and 'ok' or results
end

local function settle_all(record, act, text, call, ms, reason)
  if record then
    local size, all = string.match(record, '^(%d+) (.*)$')
    local acked = act == 'ack' and text == all and redis.pcall('XACK', stream, group, (string.match(all, '%S+')))
    if acked == 1 or acked and is_there() then
      redis.call('HDEL', consumers, 'call:' .. call)
      redis.call('ZREM', leases, 'call:' .. call)
      in_calls = in_calls - size + 1
      return 'ok'
    end
    if is_there() then
      split_call(call, record)
    end
  end
  local ids, results = {}, {}
  for id in string.gmatch(text, '%S+') do
    ids[#ids + 1] = id
  end
  if act == 'ack' then
    return acknowledge(ids, call, reason)
  end
  for place, id in ipairs(ids) do
    results[2 * place - 1], results[2 * place] = settle(act, id, call, ms, reason)
  end
  return results
end

local first = redis.call('HGET', consumers, 'call:' .. (ARGV[8] or ''))
local is_whole = #ARGV == 10 and ARGV[6] == 'ack' and first and string.match(first, ' (.*)') == ARGV[7]
if not is_whole then
  -- @guard HMGET HSET HSETNX XACK XCLAIM XPENDING ZADD ZSCORE
end
for i = 6, #ARGV, 5 do
  local record = i == 6 and first
  if i > 6 then
    record = redis.call('HGET', consumers, 'call:' .. ARGV[i + 2])
  end
  answer[#answer + 1] = settle_all(record, ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4])
end
-- The next entry of a lane becomes free.
for _, lane in pairs(lanes) do
  if lane.changed and lane.ids[1] then
    waiting = waiting - redis.call('ZADD', leases, 'NX', digits(now), lane.ids[1])
  end
end
write_lanes()
return answer
