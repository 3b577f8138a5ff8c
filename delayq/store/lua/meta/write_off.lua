-- Accept that messages are missing: those that were scheduled, have not ended, and are not in the pool.
-- KEYS: state pool
-- ARGV: the counters of messages that left the pool
-- Returns: how many were written off; below 0: so many more were there than had been scheduled
-- @flags allow-oom
local state, pool = KEYS[1], KEYS[2]
local function count(name)
  return tonumber(redis.call('HGET', state, name) or '') or 0
end
local missing = count('scheduled') - count('written_off') - redis.call('HLEN', pool)
for i = 1, #ARGV do
  missing = missing - count(ARGV[i])
end
if missing ~= 0 then
  redis.call('HINCRBY', state, 'written_off', missing)
end
return missing
