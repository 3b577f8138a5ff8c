-- The member of the index by which a message is found that was asked for by the id that its caller gave, without the
-- suffix of its ordering key. No business key begins like that. It stays until the id is forgotten here.
local function asked_member(id)
  return '\1' .. string.sub(id, 1, -6) .. '\0' .. id
end
