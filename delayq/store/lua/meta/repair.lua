-- Repair one page of the pool. A record gets its ticket back if it is in no queue, in no parked set and not among the
-- dead letters. An unreadable record becomes a dead letter.
-- KEYS: state queue pool attempts dead reasons audit, then the parked sets.
-- ARGV: now, cursor, how many to look at, entry or ''. See include/audit for the entry.
-- Returns: {next cursor ('0' = done), tickets restored, new dead letters}.
-- @flags allow-oom
-- @include clock record
local state, queue, pool, attempts, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local audit, entry = KEYS[7], ARGV[4]
local noted = entry ~= '' and {}
local page = redis.call('HSCAN', pool, ARGV[2], 'COUNT', ARGV[3])
local now = digits(clock(ARGV[1]))
local answer = { page[1], 0, 0 }
local function stands(id, ticket)
  if redis.call('ZSCORE', queue, ticket) or redis.call('ZSCORE', dead, id) then
    return true
  end
  for i = 8, #KEYS do
    if redis.call('ZSCORE', KEYS[i], ticket) then
      return true
    end
  end
  return false
end
for i = 1, #page[2], 2 do
  local id, record = page[2][i], page[2][i + 1]
  if #record >= FIELDS - 1 and not string.find(string.sub(record, ASKED, MARK - 1), '[^0-9]') then
    local ticket = ticket_of(id, record)
    if not stands(id, ticket) then
      redis.call('HSETNX', attempts, id, '0') -- it may have been in flight
      redis.call('ZADD', queue, tonumber(string.sub(record, ASKED, MARK - 1)), ticket)
      answer[2] = answer[2] + 1
      if noted then
        -- @include note
      end
    end
  elseif not redis.call('ZSCORE', dead, id) then
    redis.call('ZADD', dead, now, id)
    redis.call('HSET', reasons, id, now .. ' 0 corrupt record')
    answer[3] = answer[3] + 1
    if noted then
      -- @include note
    end
  end
end
if answer[2] > 0 then
  redis.call('HINCRBY', state, 'repaired', answer[2])
end
if noted and #noted > 0 then
  -- @include audit
end
return answer
