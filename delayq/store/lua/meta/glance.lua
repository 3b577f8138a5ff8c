-- Read the values that a worker polls: the time, the layouts, and the version of the policies.
-- KEYS: meta policies.
-- ARGV: now.
-- Returns: {now, layouts as they are listed or '', the version of the policies or ''}.
-- @flags no-writes
-- @include clock
local now = clock(ARGV[1])
return { digits(now), redis.call('HGET', KEYS[1], 'layouts') or '', redis.call('HGET', KEYS[2], 'version') or '' }
