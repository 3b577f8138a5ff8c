-- Return the ids of the messages that carry a business key, in order. Some belong to pending messages and dead letters.
-- Others have ended and are still remembered.
-- KEYS: keys state final.
-- ARGV: key, most to return, start id, most ended to return, most to look at, now, window of final.
--   The ids begin behind the start id ('' = with the first). With 0 ended ones to return, none of them is.
-- Returns: {the id behind which to continue ('' = all are read), the ids, the ids that have ended}.
-- @flags no-writes
-- @include clock final
local index, state, final = KEYS[1], KEYS[2], KEYS[3]
local most, most_ended, look = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local by_both, window = earlier(state, clock(ARGV[6])), tonumber(ARGV[7])
local PAGE = 1000 -- as many as stand in one call
local behind, last = ARGV[3], '(' .. ARGV[1] .. '\1'
local ids, ended_ids = {}, {}
while look > 0 do
  local page = math.min(PAGE, look)
  local members = redis.call('ZRANGEBYLEX', index, '(' .. ARGV[1] .. '\0' .. behind, last, 'LIMIT', 0, page)
  local some = {}
  for i, member in ipairs(members) do
    some[i] = string.sub(member, #ARGV[1] + 2)
  end
  local scores = #some > 0 and redis.call('ZMSCORE', final, unpack(some)) or {}
  for i, id in ipairs(some) do
    if not scores[i] then
      ids[#ids + 1] = id
      if #ids == most then
        return { id, ids, ended_ids }
      end
    elseif #ended_ids < most_ended and ending(scores[i], by_both, window) then
      ended_ids[#ended_ids + 1] = id
      if #ended_ids == most_ended then
        return { id, ids, ended_ids }
      end
    end
  end
  if #some < page then
    return { '', ids, ended_ids }
  end
  behind, look = some[#some], look - #some
end
return { behind, ids, ended_ids }
