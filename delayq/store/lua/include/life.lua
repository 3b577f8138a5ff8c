-- Return the later of the watermark and now: a cancel is certain if the due time is after it. At or before it the
-- message may be in flight. Also return the pauses, the watermark, and the earlier of two clocks (see include/final).
local function floor_of_certainty(state, now)
  local known = redis.call('HMGET', state, 'watermark', 'paused', 'ahead')
  local watermark = tonumber(known[1] or '') or -1
  return math.max(watermark, now), known[2], watermark, now - (tonumber(known[3] or '') or 0)
end

-- Return 'pending' and the due time, or the reason why the message is not in the queue: 'dead' or 'parked'.
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

-- Return whether a message that is not exposed was certainly never handed out. It was not if its due time is after the
-- floor. It was not if its asked due time is after the mark of a pause that lasts. `due` is nil if the message is not
-- in the queue.
local function untouched(record, due, floor, paused)
  if due and due > floor then
    return true
  elseif not paused then
    return false
  end
  mark_of = mark_of or marks_of(paused)
  return (tonumber(string.sub(record, ASKED, MARK - 1)) or -1) > mark_of(topic_of(record))
end
