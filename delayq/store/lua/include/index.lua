-- @include asked
-- The members of the index that lead from keys, a space between two, to `id`: appended to `members`.
local function add_key_members(members, keys, id)
  for key in string.gmatch(keys, '[^ ]+') do
    members[#members + 1] = key .. '\0' .. id
  end
end

-- The keys of a message that ends: its business keys, which stay in the index as long as its id is remembered. Its reserved ones
-- count what is pending, so their members, which have to go, are appended to `members`.
local function split_keys(members, keys, id)
  local own = unreserved(keys)
  if #own < #keys then
    add_key_members(members, string.sub(keys, #own + 1), id)
  end
  return own
end

-- The same of a record; no keys if that is damaged.
local function split_keys_of(members, record, id)
  local _, _, _, options_end, keys_end = fields(record)
  if not options_end or keys_end == options_end then
    return ''
  end
  return split_keys(members, string.sub(record, options_end + 1, keys_end), id)
end
