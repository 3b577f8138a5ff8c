-- Acknowledge, extend or hand back messages that calls of a consumer group have leased.
-- KEYS: consumers, stream, leases
-- ARGV: now, group, most hand-backs, pauses after the first hand-back, the second, ... (ms, a space between two), name of the
--   consumer. Then of each: 'ack' | 'extend' | 'back' | 'release', entry ids (a space between two), call of the lease, ms,
--   reason. The ms are those of the new lease, or of the pause; '' means the next pause of the list.
--   Last the deadline (see include/deadline).
-- Returns: {now, then of each 'ok' if it acknowledged all of its entries, else a list}. The list has of each entry:
--   'ok' | 'lost' | 'exhausted', when the lease or the pause ends or the reasons.
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

local function settle(act, id, call, ms, reason)
  local how, by, count, backs, lane, reasons = state_of(id)
  if not how then
    return act == 'ack' and 'ok' or 'lost', '' -- acknowledged already, or trimmed
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
local function acknowledge(ids, call)
  local results, are_ok = {}, true
  for first = 1, #ids, 1000 do
    local some, done = { unpack(ids, first, math.min(first + 999, #ids)) }, {}
    for place, record in ipairs(redis.call('HMGET', consumers, unpack(some))) do
      local how, by, _, _, lane = parse(record)
      local n = #results
      if how == 'L' and by == call and lane == '' then
        done[#done + 1] = some[place]
        results[n + 1], results[n + 2] = 'ok', ''
      else
        results[n + 1], results[n + 2] = settle('ack', some[place], call)
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
    if act == 'ack' and text == all then
      redis.call('XACK', stream, group, (string.match(all, '%S+')))
      redis.call('HDEL', consumers, 'call:' .. call)
      redis.call('ZREM', leases, 'call:' .. call)
      in_calls = in_calls - size + 1
      return 'ok'
    end
    split_call(call, record)
  end
  local ids, results = {}, {}
  for id in string.gmatch(text, '%S+') do
    ids[#ids + 1] = id
  end
  if act == 'ack' then
    return acknowledge(ids, call)
  end
  for place, id in ipairs(ids) do
    results[2 * place - 1], results[2 * place] = settle(act, id, call, ms, reason)
  end
  return results
end

local first = redis.call('HGET', consumers, 'call:' .. (ARGV[8] or ''))
local is_whole = #ARGV == 10 and ARGV[6] == 'ack' and first and string.match(first, ' (.*)') == ARGV[7]
if not is_whole then
  -- @guard HMGET HSET HSETNX XACK XCLAIM ZADD ZSCORE
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
