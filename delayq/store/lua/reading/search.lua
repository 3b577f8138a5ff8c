-- A page of the pool: the ids of the messages that carry a property.
-- KEYS: pool
-- ARGV: cursor, how many to look at, the property's name, its value
-- Returns: {next cursor ('0' = done), how many were looked at, the bytes of their records, then the ids}
-- @flags no-writes
-- @include record
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local function text(value)
  return string.char(math.floor(#value / 256), #value % 256) .. value
end
local wanted = text(ARGV[3]) .. text(ARGV[4])

local function carries(record)
  if not string.find(record, wanted, 1, true) then
    return false -- nearly all that are of no interest
  end
  local _, _, _, _, at, last = fields(record)
  while at and at < last do
    if string.sub(record, at + 1, at + #wanted) == wanted then
      return true
    end
    for _ = 1, 2 do -- behind the name, then behind the value
      local high, low = byte(record, at + 1, at + 2)
      if not low then
        return false -- damaged
      end
      at = at + 2 + high * 256 + low
    end
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
