-- Begin a new era. It is later than the last era and than that of any epoch that the queues have.
-- KEYS: meta audit.
-- ARGV: the latest era of the queues' epochs, entry or ''. See include/audit for the entry.
-- Returns: {the era before, the era now}.
-- @flags allow-oom
local audit, entry = KEYS[2], ARGV[2]
local before = redis.call('HGET', KEYS[1], 'era') or '0'
local now = string.format('%.0f', math.max(tonumber(before), tonumber(ARGV[1])) + 1)
redis.call('HSET', KEYS[1], 'era', now)
local noted = { before .. ' ' .. now }
if entry ~= '' then
  -- @include audit
end
return { before, now }
