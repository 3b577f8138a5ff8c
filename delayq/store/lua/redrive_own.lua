-- Put dead letters back, if their topics are those that are named.
-- KEYS: those of redrive
-- ARGV: those of redrive, then of each id the topic
-- Returns: what redrive does; of a message of another topic, what it says of an id that it does not know
-- @include record own
local ARGV = only_own(KEYS[3], 3, (#ARGV - 2) / 2)
-- @script redrive
