-- Return whether an entry id of a stream is less than another one. Ids have 64 bits, which numbers in Lua do not have. So the
-- parts of an id are compared as text.
local function is_before(id, other)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  if ms ~= other_ms then
    return #ms < #other_ms or #ms == #other_ms and ms < other_ms
  end
  return #number < #other_number or #number == #other_number and number < other_number
end
