-- Acknowledge, extend or hand back messages that calls of a consumer group have leased.
-- KEYS: stream, leases, consumers
-- ARGV: now, group, most hand-backs, pauses after the first hand-back, the second, ... (ms, a space between two).
--   Then of each: 'ack' | 'extend' | 'back' | 'release', entry id, call of the lease, ms, reason.
--   The ms are those of the new lease, or of the pause; '' means the next pause of the list.
--   Last the deadline (see include/deadline).
-- Returns: {now, then of each 'ok' | 'lost' | 'exhausted', when the lease or the pause ends or the reasons}
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local stream, leases, consumers = KEYS[1], KEYS[2], KEYS[3]
local now, group, most_backs = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local answer, pauses = { digits(now) }, {}
for pause in string.gmatch(ARGV[4], '%d+') do
  pauses[#pauses + 1] = tonumber(pause)
end

local function settle(act, id, call, ms, reason)
  local how, by, count, backs, reasons = string.match(redis.call('HGET', consumers, id) or '', '^(%u) (%S+) (%d+) (%d+) (.*)$')
  if not how then
    return act == 'ack' and 'ok' or 'lost', '' -- acknowledged already, or trimmed
  elseif by ~= call then
    return 'lost', ''
  elseif act == 'ack' then
    if how == 'H' then
      return 'lost', ''
    end
    redis.call('XACK', stream, group, id)
    redis.call('HDEL', consumers, id)
    redis.call('ZREM', leases, id)
    return 'ok', ''
  elseif how == 'H' then -- the same call again
    return (act == 'back' or act == 'release') and 'ok' or 'lost', redis.call('ZSCORE', leases, id) or ''
  elseif act == 'release' then -- it was not handled, so this lease does not count
    redis.call('HSET', consumers, id, 'H ' .. table.concat({ call, count - 1, backs, reasons }, ' '))
    redis.call('HINCRBY', consumers, 'handedBack', 1)
    redis.call('ZADD', leases, digits(now), id)
    return 'ok', digits(now)
  end
  if act == 'back' then
    backs = tonumber(backs) + 1
    ms = ms or pauses[math.min(backs, #pauses)]
    reasons = (reasons == '' and '' or reasons .. '\n') .. reason
    if backs > most_backs then
      return 'exhausted', reasons -- the caller makes it a dead letter, then acknowledges it
    end
    redis.call('HSET', consumers, id, 'H ' .. table.concat({ call, count, backs, reasons }, ' '))
    redis.call('HINCRBY', consumers, 'handedBack', 1)
  end
  local stop = digits(now + ms)
  redis.call('ZADD', leases, stop, id)
  return 'ok', stop
end

for i = 5, #ARGV, 5 do
  local n = #answer
  answer[n + 1], answer[n + 2] = settle(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4])
end
return answer
