-- Write off missing messages: they were scheduled, have not ended, and are not in the pool.
-- KEYS: state pool audit.
-- ARGV: entry or '', then the counters of messages that left the pool. See include/audit for the entry.
-- Returns: how many were written off. A negative number means that the pool had more messages than were scheduled.
-- @flags allow-oom
local state, pool, audit, entry = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local function count(name)
  return tonumber(redis.call('HGET', state, name) or '') or 0
end
local missing = count('scheduled') - count('written_off') - redis.call('HLEN', pool)
for i = 2, #ARGV do
  missing = missing - count(ARGV[i])
end
if missing ~= 0 then
  redis.call('HINCRBY', state, 'written_off', missing)
  local noted = { string.format('%.0f', missing) }
  if entry ~= '' then
    -- @include audit
  end
end
return missing
