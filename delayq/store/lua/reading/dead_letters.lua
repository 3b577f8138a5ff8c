-- Return a page of dead letters by the time of their burial.
-- KEYS: pool dead reasons.
-- ARGV: most to return, time, id, order, fields.
--   The time and id are those of the last one seen. Without an id the page begins at the time, without a time at the
--   start.
--   The order is 'oldest' or 'newest' first.
--   The fields are '1' for records and reasons, 'brief' for topics and reasons, or ''.
-- Returns: for each dead letter {id, time of burial, record or topic, reason}. Without fields, only {id, time}.
-- @flags no-writes
local pool, dead, reasons = KEYS[1], KEYS[2], KEYS[3]
local time, behind, wanted = ARGV[2], ARGV[3], ARGV[5]
local newest = ARGV[4] == 'newest'

-- Return how many dead letters come before the first one of the page.
local function passed()
  if time == '' then
    return 0
  end
  local score = behind ~= '' and redis.call('ZSCORE', dead, behind)
  if score and tonumber(score) == tonumber(time) then
    local rank = redis.call('ZRANK', dead, behind)
    return newest and redis.call('ZCARD', dead) - rank or rank + 1
  end
  if newest then
    return redis.call('ZCOUNT', dead, '(' .. time, '+inf')
  end
  return redis.call('ZCOUNT', dead, '-inf', '(' .. time)
end

local start = passed()
local stop = start + tonumber(ARGV[1]) - 1
local entries
if newest then
  entries = redis.call('ZRANGE', dead, start, stop, 'REV', 'WITHSCORES')
else
  entries = redis.call('ZRANGE', dead, start, stop, 'WITHSCORES')
end
local answer = {}
for i = 1, #entries, 2 do
  local id = entries[i]
  local letter = { id, entries[i + 1] }
  if wanted ~= '' then
    local record = redis.call('HGET', pool, id) or ''
    if wanted == 'brief' then
      -- @include record
      record = fields(record) and string.sub(record, FIELDS, FIELDS - 1 + byte(record, TOPIC_LENGTH)) or ''
    end
    letter[3] = record
    letter[4] = redis.call('HGET', reasons, id) or ''
  end
  answer[#answer + 1] = letter
end
return answer
