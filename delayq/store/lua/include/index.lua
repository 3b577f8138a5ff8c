-- The member of the index by which a message is found that was asked for by the id that its caller gave, without the
-- suffix of its ordering key. No business key begins like that. It stays until the id is forgotten here.
local function asked_member(id)
  return '\1' .. string.sub(id, 1, -6) .. '\0' .. id
end

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
