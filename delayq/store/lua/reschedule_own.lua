-- Give a message another due, if its topic is the one that is named.
-- KEYS: those of reschedule
-- ARGV: those of reschedule, then the topic
-- Returns: what reschedule does; of a message of another topic, what it says of an id that it does not know
-- @include record own
local ARGV = only_own(KEYS[3], 5, 1)
-- @script reschedule
