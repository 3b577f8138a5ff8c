-- A record is sliced by the offsets of codec.py, which count from 1 here. These are the length of a generation, and
-- where each part begins. The parts are the asked due time, the mark, the flags, the lengths (topic, ordering key,
-- properties, body) and the fields.
local byte = string.byte
local GENERATION, ASKED, MARK, FLAGS = 7, 8, 21, 22
local TOPIC_LENGTH, ORDERING_LENGTH, PROPERTIES_LENGTH, BODY_LENGTH, FIELDS = 23, 25, 29, 32, 36
local DUE_DIGITS = 13
