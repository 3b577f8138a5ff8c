-- Begin a new era: one later than the last, and than any of which an epoch was seen.
-- KEYS: meta
-- ARGV: the latest era of the epochs that the queues have
-- Returns: {the era before, the era now}
-- @flags allow-oom
local before = redis.call('HGET', KEYS[1], 'era') or '0'
local now = string.format('%.0f', math.max(tonumber(before), tonumber(ARGV[1])) + 1)
redis.call('HSET', KEYS[1], 'era', now)
return { before, now }
