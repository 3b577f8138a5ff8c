-- Return the index member that leads from the id that a caller gave to the complete id, which has a suffix for the
-- ordering key. No business key begins with this byte. The member stays until the id is forgotten.
local function asked_member(id)
  return '\1' .. string.sub(id, 1, -6) .. '\0' .. id
end
