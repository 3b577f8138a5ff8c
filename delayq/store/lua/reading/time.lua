-- The time of Redis, in the form of TIME, as the scripts see it. A development server needs it: there TIME is not delayq's time.
-- KEYS: none
-- ARGV: now
-- Returns: {seconds, µs}
-- @flags no-writes
-- @include clock
local now, micro = clock(ARGV[1])
return { math.floor(now / 1000), now % 1000 * 1000 + micro }
