-- Cancel messages, if their topics are those that are named.
-- KEYS: those of cancel
-- ARGV: those of cancel, then of each id the topic
-- Returns: what cancel does; of a message of another topic, what it says of an id that it does not know
-- @flags allow-oom
-- @include record own
local ARGV = only_own(KEYS[3], 4, (#ARGV - 3) / 2)
-- @script cancel
