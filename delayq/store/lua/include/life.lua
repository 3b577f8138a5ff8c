-- The later of watermark and now, above which a due must lie for a cancel to be certain: below, it may be in flight. What is
-- paused, and the watermark.
local function floor_of_certainty(state, now)
  local known = redis.call('HMGET', state, 'watermark', 'paused')
  local watermark = tonumber(known[1] or '') or -1
  return math.max(watermark, now), known[2], watermark
end

-- 'pending' with its due, or why not: 'dead', 'parked'.
local function place_of(queue, dead, id, ticket)
  local score = redis.call('ZSCORE', queue, ticket)
  if score then
    return 'pending', tonumber(score)
  end
  return redis.call('ZSCORE', dead, id) and 'dead' or 'parked'
end

local marks, globs, found -- of topics, of patterns, and of topics that were asked for: made when one is

-- The lowest mark of the pauses that cover a topic; infinite if none does.
local function mark_of(paused, topic)
  if not marks then
    marks, globs, found = {}, {}, {}
    for mark, match in string.gmatch(paused, '(%d+) ([^\n]+)') do
      if string.find(match, '[*?]') then
        globs[#globs + 1] = { glob(match), tonumber(mark) }
      else
        marks[match] = tonumber(mark)
      end
    end
  end
  local lowest = found[topic]
  if not lowest then
    lowest = marks[topic] or math.huge
    for _, one in ipairs(globs) do
      if one[2] < lowest and matches(one[1], topic) then
        lowest = one[2]
      end
    end
    found[topic] = lowest
  end
  return lowest
end

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
  return (tonumber(string.sub(record, ASKED, MARK - 1)) or -1) > mark_of(paused, topic_of(record))
end
