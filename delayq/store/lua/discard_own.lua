-- Delete dead letters for good, if their topics are those that are named.
-- KEYS: those of discard
-- ARGV: those of discard, then of each id the topic
-- Returns: what discard does; of a message of another topic, what it says of an id that it does not know
-- @flags allow-oom
-- @include record own
local ARGV = only_own(KEYS[2], 1, #ARGV / 2)
-- @script discard
