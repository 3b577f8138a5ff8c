-- Return the ids of the messages in a page of the pool that carry a property.
-- KEYS: pool.
-- ARGV: cursor, how many to look at, the property's name, its value.
-- Returns: {next cursor ('0' = done), how many were looked at, the bytes of their records, then the ids}.
-- @flags no-writes
-- @include record properties carries
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local wanted = property_text(ARGV[3], ARGV[4])
local answer = { page[1], #page[2] / 2, 0 }
for i = 1, #page[2], 2 do
  local record = page[2][i + 1]
  answer[3] = answer[3] + #record
  if carries(record, wanted) then
    answer[#answer + 1] = page[2][i]
  end
end
return answer
