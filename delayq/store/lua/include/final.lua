-- `final` remembers how an id ended: score = ms * 4 + how. Trimmed in bounded steps, oldest first.
local FORWARDED, CANCELLED, CANCELLED_IN_FLIGHT = 0, 1, 2
local function forget_old(final, now, window, most)
  local old = redis.call('ZCOUNT', final, '-inf', string.format('%.0f', (now - window) * 4 - 1))
  local over = redis.call('ZCARD', final) - most
  if over > old then
    old = over
  end
  if old > 0 then
    redis.call('ZREMRANGEBYRANK', final, 0, math.min(old, 2000) - 1)
  end
end

-- How the id with this score in `final` ended; nil if it is forgotten.
local function ending(score, now, window)
  score = tonumber(score or '')
  if not score or score < (now - window) * 4 then
    return nil
  end
  return score % 4
end
