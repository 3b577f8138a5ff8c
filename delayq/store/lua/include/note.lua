-- Note a message for the audit: id, topic and business keys, with a NUL byte between two.
local topic_end, _, _, options_end, keys_end = fields(record)
local topic = topic_end and string.sub(record, FIELDS, topic_end) or ''
noted[#noted + 1] = id .. '\0' .. topic .. '\0' .. (keys_end and string.sub(record, options_end + 1, keys_end) or '')
