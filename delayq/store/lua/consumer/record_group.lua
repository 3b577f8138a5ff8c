-- Record that consumers of a group receive a stream, before and after the group is made. So nobody has to search for groups.
-- KEYS: groups, makings
-- ARGV: now, field, first and last queue of a stream for each queue ('' for a single stream), most records. Then the name of this
--   writing, '1' after the group was made, '1' if a stream has the group. Then filter, API key or '', most records of one key.
--   The field is topic, group and stream, a space between two. Last the deadline (see include/deadline).
-- Returns: {'new'} if the group has to be made in all streams at its start. {'made'} if it begins at 0 in streams without it.
--   {'gone'} if it was deleted while it was made. Else {'full'}, {'full of key'}, or {'filter', the group's own}.
-- @flags allow-oom
-- @promise
-- @include clock deadline
local groups, makings, now, field, first, last = KEYS[1], KEYS[2], clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local name, is_after, filter, key, most_of_key = ARGV[6], ARGV[7] == '1', ARGV[9], ARGV[10], tonumber(ARGV[11])

-- Read a making: 'new' or 'made', the name of its last writing, and the API key that recorded the group. A group that a
-- former version recorded has none, and is made, and so is a group with a making that delayq did not write.
local function parse(making)
  local state, name, key = string.match(making or '', '^(%l+) (%S*) (.*)$')
  return state or 'made', name or '', key or ''
end

local known = redis.call('HGET', groups, field)
local state, _, owner = parse(known and redis.call('HGET', makings, field) or nil)
if not known then
  if is_after then
    return { 'gone' }
  end
  local fields = redis.call('HKEYS', groups)
  if #fields >= tonumber(ARGV[5]) then
    return { 'full' }
  end
  local consumer, has_other = string.match(field, '^%S+ %S+ '), false
  for _, one in ipairs(fields) do -- a topic whose route has changed: the group is no new one
    has_other = has_other or string.sub(one, 1, #consumer) == consumer
  end
  if key ~= '' and #fields > 0 then
    local of_key = 0
    for _, making in ipairs(redis.call('HMGET', makings, unpack(fields))) do
      local _, _, its_key = parse(making or nil)
      of_key = of_key + (its_key == key and 1 or 0)
    end
    if of_key >= most_of_key then
      return { 'full of key' }
    end
  end
  state, owner = (has_other or ARGV[8] == '1') and 'made' or 'new', key
  redis.call('HSET', makings, 'filter ' .. field, filter)
else
  local own = redis.call('HGET', makings, 'filter ' .. field)
  if own and own ~= filter then
    return { 'filter', own }
  end
end
if is_after then
  state = 'made'
end
-- A record that delayq did not write is replaced: no group was recorded later than now.
local since = string.match(known or '', '^(%d+)$') or string.match(known or '', '^(%d+) %d+ %d+$')
since = since and tonumber(since) <= now and since or digits(now)
if first then -- entries of the queues of an older layout may still be unread
  local old_first, old_last = string.match(known or '', '^%d+ (%d+) (%d+)$')
  first, last = math.min(first, tonumber(old_first) or first), math.max(last, tonumber(old_last) or last)
  since = table.concat({ since, digits(first), digits(last) }, ' ')
end
if since ~= known then
  redis.call('HSET', groups, field, since)
end
if is_after or not known then -- a delete that has read the record before finds another one
  redis.call('HSET', makings, field, state .. ' ' .. name .. ' ' .. owner)
end
return { state }
