-- @include offsets
-- Return where each field of a record ends (topic, tags, ordering key, options, keys, properties, body), its mark and
-- flags. Return nil if the record is cut short.
local function fields(record)
  local mark, flags, topic, tags, ordering, options, k1, k2, p1, p2, p3, b1, b2, b3, b4 = byte(record, MARK, FIELDS - 1)
  if not b4 then
    return nil
  end
  local topic_end = FIELDS - 1 + topic
  local tags_end = topic_end + tags
  local ordering_end = tags_end + ordering
  local options_end = ordering_end + options
  local keys_end = options_end + k1 * 256 + k2
  local properties_end = keys_end + p1 * 65536 + p2 * 256 + p3
  local body_end = properties_end + ((b1 * 256 + b2) * 256 + b3) * 256 + b4
  mark = mark - 48
  if mark < 0 or mark > 3 or body_end + mark % 2 * DUE_DIGITS ~= #record then
    return nil
  end
  return topic_end, tags_end, ordering_end, options_end, keys_end, properties_end, body_end, mark, flags
end

local function ticket_of(id, record)
  return id .. '\0' .. string.sub(record, 1, GENERATION)
end

-- Return the business keys of a complete record, with a space between two.
local function keys_of(record)
  local topic, tags, ordering, options, high, low = byte(record, TOPIC_LENGTH, PROPERTIES_LENGTH - 1)
  local start = FIELDS + topic + tags + ordering + options
  return string.sub(record, start, start + high * 256 + low - 1)
end
