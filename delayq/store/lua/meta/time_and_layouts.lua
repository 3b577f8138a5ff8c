-- What a worker asks again and again: the time, and the layouts.
-- KEYS: meta
-- ARGV: now
-- Returns: {now, layouts as they are listed or ''}
-- @flags no-writes
-- @include clock
local now = clock(ARGV[1])
return { digits(now), redis.call('HGET', KEYS[1], 'layouts') or '' }
