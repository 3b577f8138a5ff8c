-- A record is sliced by the offsets of codec.py, counted from 1 here.
local byte = string.byte
local GENERATION, ASKED, MARK, FLAGS, FIELDS = 7, 8, 21, 22, 36

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

-- The members of the index of business keys that belong to `id`, appended to `members`.
local function add_key_members(members, keys, id)
  for key in string.gmatch(keys, '[^ ]+') do
    members[#members + 1] = key .. '\0' .. id
  end
end

local function key_members(record, id)
  local members = {}
  local _, _, _, d, e = fields(record)
  if d and e > d then
    add_key_members(members, string.sub(record, d + 1, e), id)
  end
  return members
end
