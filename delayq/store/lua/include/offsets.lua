-- A record is sliced by the offsets of codec.py, counted from 1 here: how long a generation is, and where the asked due, the mark,
-- the flags, the lengths (of the topic, the ordering key, the properties, the body) and the fields themselves begin.
local byte = string.byte
local GENERATION, ASKED, MARK, FLAGS = 7, 8, 21, 22
local TOPIC_LENGTH, ORDERING_LENGTH, PROPERTIES_LENGTH, BODY_LENGTH, FIELDS = 23, 25, 29, 32, 36
local DUE_DIGITS = 13
