-- @include asked
-- The members of the index of business keys that belong to `id`, appended to `members`.
local function add_key_members(members, keys, id)
  for key in string.gmatch(keys, '[^ ]+') do
    members[#members + 1] = key .. '\0' .. id
  end
end

local function key_members(record, id)
  local members = {}
  local _, _, _, options_end, keys_end = fields(record)
  if options_end and keys_end > options_end then
    add_key_members(members, string.sub(record, options_end + 1, keys_end), id)
  end
  return members
end
