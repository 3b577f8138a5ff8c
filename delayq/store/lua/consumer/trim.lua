-- Trim a stream by age and by length, one bounded step. Without force, only entries that every group has acknowledged are removed.
-- KEYS: stream.
-- ARGV: now (ms, or '' for the time of Redis), longest age (ms, or ''), most entries (or ''), '1' for force, most entries to remove.
--   Then the last entry id that may be removed (or ''), and the names of the recorded groups.
-- Returns: {entries that were removed, '1' if another step can remove more, the last id}. The last id of the stream is read only if
--   no entry may be removed. Without such a stream: {-1, '0', '0-0'}.
-- @flags allow-oom
-- @empties
-- @first EXISTS TIME XINFO XPENDING
-- @include clock group_positions is_before
local stream, age, length, forced, most = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local LAST, PAGE = '18446744073709551615-18446744073709551615', 100
if redis.call('EXISTS', stream) == 0 then
  return { -1, '0', '0-0' }
end

-- Return the id behind an id. For a number that Lua cannot count on, it is the id itself: one entry more stays.
local function behind(id)
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  return #seq < 16 and ms .. '-' .. string.format('%.0f', seq + 1) or id
end

-- Find the first id that a group has yet to acknowledge. Without groups nobody has acknowledged anything.
local bound = forced and LAST or '0-0'
local positions = forced and {} or group_positions(stream)
for _, group in pairs(positions) do
  local first = behind(group.last)
  if group.oldest and is_before(group.oldest, first) then
    first = group.oldest
  end
  if bound == '0-0' or is_before(first, bound) then
    bound = first
  end
end

-- A recorded group that the stream does not have has acknowledged nothing.
for i = 7, forced and 0 or #ARGV do
  if not positions[ARGV[i]] then
    bound = '0-0'
  end
end
if ARGV[6] ~= '' and bound ~= '0-0' and is_before(behind(ARGV[6]), bound) then
  bound = behind(ARGV[6])
end

-- Remove at most so many of the oldest entries below an id. Return their number, and whether there are more of them.
local function remove(id, count)
  -- Redis first removes complete nodes of the stream, unread. Then the script removes entries of the next node.
  local removed = count > 0 and redis.call('XTRIM', stream, 'MINID', '~', id, 'LIMIT', count) or 0
  local few = math.min(count - removed, PAGE)
  local rest = redis.call('XRANGE', stream, '-', '(' .. id, 'COUNT', few + 1)
  if few > 0 and #rest > 0 then
    removed = removed + redis.call('XTRIM', stream, 'MINID', '=', rest[few + 1] and rest[few + 1][1] or id)
  end
  return removed, #rest > few
end

local removed, more = 0, false
if age and bound ~= '0-0' then
  -- The time in an id is when the entry was appended.
  local oldest = digits(math.max(clock(ARGV[1]) - age, 0)) .. '-0'
  removed, more = remove(is_before(oldest, bound) and oldest or bound, most)
end
if length and bound ~= '0-0' and not more then
  local over = redis.call('XLEN', stream) - length
  if over > 0 then
    local gone, left = remove(bound, math.min(over, most - removed))
    removed, more = removed + gone, left and over > gone
  end
end
local info, last = most == 0 and redis.call('XINFO', 'STREAM', stream) or {}, '0-0'
for i = 1, #info, 2 do
  last = info[i] == 'last-generated-id' and info[i + 1] or last
end
return { removed, more and '1' or '0', last }
