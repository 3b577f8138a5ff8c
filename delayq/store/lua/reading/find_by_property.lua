-- A page of the pool: the ids of the messages that carry a property.
-- KEYS: pool
-- ARGV: cursor, how many to look at, the property's name, its value
-- Returns: {next cursor ('0' = done), how many were looked at, the bytes of their records, then the ids}
-- @flags no-writes
-- @include record properties
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local function text(value)
  return string.char(math.floor(#value / 256), #value % 256) .. value
end
local wanted = text(ARGV[3]) .. text(ARGV[4])

local function carries(record)
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

local answer = { page[1], #page[2] / 2, 0 }
for i = 1, #page[2], 2 do
  local record = page[2][i + 1]
  answer[3] = answer[3] + #record
  if carries(record) then
    answer[#answer + 1] = page[2][i]
  end
end
return answer
