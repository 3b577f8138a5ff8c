-- The later of watermark and now, above which a due must lie for a cancel to be certain: below, it may be in flight. What is
-- paused, the watermark, and the earlier of two clocks (see include/final).
local function floor_of_certainty(state, now)
  local known = redis.call('HMGET', state, 'watermark', 'paused', 'ahead')
  local watermark = tonumber(known[1] or '') or -1
  return math.max(watermark, now), known[2], watermark, now - (tonumber(known[3] or '') or 0)
end

-- 'pending' with its due, or why not: 'dead', 'parked'.
local function place_of(queue, dead, id, ticket)
  local score = redis.call('ZSCORE', queue, ticket)
  if score then
    return 'pending', tonumber(score)
  end
  return redis.call('ZSCORE', dead, id) and 'dead' or 'parked'
end

-- @include pauses
local function topic_of(record)
  return string.sub(record, FIELDS, FIELDS - 1 + (byte(record, TOPIC_LENGTH) or 0))
end

-- Whether a message that is not exposed was surely never handed out: it is due later than the floor, or than the mark of a
-- pause that lasts, wherever it stands. `due` is nil if it is not in the queue.
local function untouched(record, due, floor, paused)
  if due and due > floor then
    return true
  elseif not paused then
    return false
  end
  mark_of = mark_of or marks_of(paused)
  return (tonumber(string.sub(record, ASKED, MARK - 1)) or -1) > mark_of(topic_of(record))
end
