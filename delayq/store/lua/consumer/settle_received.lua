-- Acknowledge, extend or hand back messages that calls of a consumer group have leased.
-- KEYS: consumers, stream, leases
-- ARGV: now, group, most hand-backs, pauses after the first hand-back, the second, ... (ms, a space between two).
--   Then of each: 'ack' | 'extend' | 'back' | 'release', entry id, call of the lease, ms, reason.
--   The ms are those of the new lease, or of the pause; '' means the next pause of the list.
--   Last the deadline (see include/deadline).
-- Returns: {now, then of each 'ok' | 'lost' | 'exhausted', when the lease or the pause ends or the reasons}
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local consumers, stream, leases = KEYS[1], KEYS[2], KEYS[3]
local now, group, most_backs = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
-- @include lanes
local answer, pauses = { digits(now) }, {}
for pause in string.gmatch(ARGV[4], '%d+') do
  pauses[#pauses + 1] = tonumber(pause)
end

local function settle(act, id, call, ms, reason)
  local how, by, count, backs, lane, reasons = state_of(id)
  if not how then
    return act == 'ack' and 'ok' or 'lost', '' -- acknowledged already, or trimmed
  elseif by ~= call then
    return 'lost', ''
  elseif how == 'H' and act ~= 'ack' then -- the same call again
    return (act == 'back' or act == 'release') and 'ok' or 'lost', redis.call('ZSCORE', leases, id) or ''
  elseif how == 'H' or lane ~= '' and lane_of(lane).holder ~= call then
    return 'lost', '' -- in a lane, another call may hold an earlier entry now
  elseif act == 'ack' then
    forget(id, lane)
    return 'ok', ''
  elseif act == 'release' then -- it was not handled, so this lease does not count
    set_state(id, 'H', call, count - 1, backs, lane, reasons)
    handed_back = handed_back + 1
    set_end(id, lane, digits(now))
    return 'ok', digits(now)
  end
  if act == 'back' then
    backs = tonumber(backs) + 1
    ms = ms or pauses[math.min(backs, #pauses)]
    reasons = (reasons == '' and '' or reasons .. '\n') .. reason
    if backs > most_backs then
      return 'exhausted', reasons -- the caller makes it a dead letter, then acknowledges it
    end
    set_state(id, 'H', call, count, backs, lane, reasons)
    handed_back = handed_back + 1
  end
  local stop = digits(now + ms)
  set_end(id, lane, stop)
  if act == 'back' and lane ~= '' then
    leave_lane(lane_of(lane), id) -- later entries pass it
  end
  return 'ok', stop
end

for i = 5, #ARGV, 5 do
  local n = #answer
  answer[n + 1], answer[n + 2] = settle(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4])
end
-- The next entry of a lane becomes free.
for _, lane in pairs(lanes) do
  if lane.changed and lane.ids[1] then
    waiting = waiting - redis.call('ZADD', leases, 'NX', digits(now), lane.ids[1])
  end
end
write_lanes()
return answer
