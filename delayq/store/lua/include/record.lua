-- A record is sliced by the offsets of codec.py, counted from 1 here.
local byte = string.byte
local GENERATION, ASKED, MARK, FLAGS, LENGTHS, ORDERING, FIELDS = 7, 8, 21, 22, 23, 25, 36

-- Where each field ends (topic, tags, ordering key, options, keys, properties, body), mark and flags; nil if it is
-- cut short.
local function fields(record)
  local mark, flags, topic, tags, ordering, options, k1, k2, p1, p2, p3, b1, b2, b3, b4 = byte(record, MARK, 35)
  if not b4 then
    return nil
  end
  local a = FIELDS - 1 + topic
  local b = a + tags
  local c = b + ordering
  local d = c + options
  local e = d + k1 * 256 + k2
  local f = e + p1 * 65536 + p2 * 256 + p3
  local g = f + ((b1 * 256 + b2) * 256 + b3) * 256 + b4
  mark = mark - 48
  if mark < 0 or mark > 3 or g + mark % 2 * 13 ~= #record then
    return nil
  end
  return a, b, c, d, e, f, g, mark, flags
end

local function ticket_of(id, record)
  return id .. '\0' .. string.sub(record, 1, GENERATION)
end

-- The business keys of a record that is whole, a space between two.
local function keys_of(record)
  local topic, tags, ordering, options, high, low = byte(record, LENGTHS, LENGTHS + 5)
  local start = FIELDS + topic + tags + ordering + options
  return string.sub(record, start, start + high * 256 + low - 1)
end
