-- Return the record and state of ids.
-- KEYS: state queue pool attempts final dead reasons ended moves.
-- ARGV: now, window of final, then the ids.
-- Returns: {now, watermark or '', then one of these for each id}.
--   '' means not found, 'moved' means that the next layout may have it.
--   {ending, time, topic, name} is for an ended id. The ending is 'delivered', 'cancelled', 'removed_in_flight' or
--   'discarded'. The due time with which a hand-back was answered follows the time and a space. The topic is '' if it
--   is not remembered. The name is that of the API key that ended it, or ''.
--   {record, place, due time or '', attempts or '', reason or ''} is for any other id.
--   The place is 'pending', 'held', 'parked' or 'dead'. A pulled message of a paused topic that was certainly not sent
--   is held, parked or not.
-- @flags no-writes
-- @include clock record final life closed
local state, queue, pool, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local final, dead, reasons = KEYS[5], KEYS[6], KEYS[7]
local now = clock(ARGV[1])
local _, paused, watermark = floor_of_certainty(state, now)
local answer = { digits(now), watermark < 0 and '' or digits(watermark) }
for i = 3, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', pool, id)
  if record then
    local place, due = place_of(queue, dead, id, ticket_of(id, record))
    local tried = redis.call('HGET', attempts, id)
    if paused and not tried and place ~= 'dead' and (due or -1) <= watermark and untouched(record, due, math.huge, paused) then
      place, due = 'held', nil
    end
    answer[i] = { record, place, due and digits(due) or '', tried or '', place == 'dead' and redis.call('HGET', reasons, id) or '' }
  else
    local how, at = ending(redis.call('ZSCORE', final, id), earlier(state, now), tonumber(ARGV[2]))
    answer[i] = ''
    if how then
      local topic, by = string.match(redis.call('HGET', KEYS[8], id) or '', '\1([^%z]*)%z(.*)$')
      local due = string.match(redis.call('HGET', KEYS[9], id) or '', '\nhand:back( %d+)') or ''
      answer[i] = { ENDS[how], digits(at) .. due, topic or '', by or '' }
    elseif unknown(state) == 'moved' then
      answer[i] = 'moved'
    end
  end
end
return answer
