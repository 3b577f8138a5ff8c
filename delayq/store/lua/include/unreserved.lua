-- Business keys without the reserved ones, which stand last and begin with 'delayq:'.
local function unreserved(keys)
  local at = string.find(' ' .. keys, ' delayq:', 1, true)
  return at and string.sub(' ' .. keys, 2, at - 1) or keys
end
