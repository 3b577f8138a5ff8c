-- The watermark and now, above which a due must lie for a cancel to be certain: below, it may be in flight.
local function floor_of_certainty(state, now)
  local watermark = tonumber(redis.call('HGET', state, 'watermark') or '') or -1
  return math.max(watermark, now)
end

-- 'pending' with its due, or why not: 'dead', 'parked'.
local function place_of(queue, dead, id, ticket)
  local score = redis.call('ZSCORE', queue, ticket)
  if score then
    return 'pending', tonumber(score)
  end
  return redis.call('ZSCORE', dead, id) and 'dead' or 'parked'
end
