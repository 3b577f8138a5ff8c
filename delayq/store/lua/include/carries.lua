-- A property as records have it.
local function property_text(name, value)
  local function text(one)
    return string.char(math.floor(#one / 256), #one % 256) .. one
  end
  return text(name) .. text(value)
end

-- Whether a record has the property that reads so.
local function carries(record, wanted)
  if not string.find(record, wanted, 1, true) then
    return false -- nearly all that are of no interest
  end
  local _, _, _, _, keys_end, properties_end = fields(record)
  local at = (keys_end or 0) + 1
  while at <= (properties_end or 0) do
    if string.sub(record, at, at + #wanted - 1) == wanted then
      return true
    end
    local _, value = text_at(record, at)
    local _, behind = text_at(record, value or #record)
    if not behind then
      return false -- damaged
    end
    at = behind
  end
  return false
end
