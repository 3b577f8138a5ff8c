-- Read how far consumer groups of a stream are.
-- KEYS: stream. Then of each group: leases, consumers.
-- ARGV: now, the name of the consumer. Then the name of each group.
-- Returns: of each group '' if the stream has entries and no such group, else {waiting, pending, handed back, filter, last
--   receive, ready, oldest, foreign}.
--   Waiting entries were not received yet; '' if their number is unknown. Pending ones were received and not acknowledged.
--   Last receive: when (ms) a call received, or ''. Ready: since when (ms) a message can be received, or ''.
--   Oldest: {} or {entry id, message id, due time, 'waiting' | 'leased' | 'handedBack'} of the oldest entry that is not
--   acknowledged.
--   Foreign: '' or how many entries that delayq did not write were skipped, and of the last one when, its id, and the reason.
-- @flags no-writes
-- @include clock group_positions is_before
local stream, now = KEYS[1], clock(ARGV[1])
local positions = group_positions(stream)
local first = next(positions) and redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]

-- Count the entries behind `last`. Redis forgets how many there are after a group began in the middle or entries were
-- deleted. Then this counts a bounded number, because each entry is read with its body.
local function count_waiting(next_one, last, lag)
  if not next_one then
    return 0
  elseif is_before(last, first[1]) then
    return redis.call('XLEN', stream)
  end
  if not lag then
    local count = #redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 100)
    lag = count < 100 and count or ''
  end
  return lag
end

local function describe(entry, state)
  local id, due = entry[1], string.match(entry[1], '^%d+')
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'id' then
      id = entry[2][i + 1]
    elseif entry[2][i] == 'due' then
      due = entry[2][i + 1]
    end
  end
  return { entry[1], id, due, state }
end

-- Return the oldest entry in the records of calls, or `oldest` if that one is older.
local function oldest_of_calls(leases, consumers, oldest)
  for _, member in ipairs(redis.call('ZRANGE', leases, 0, 999)) do
    local record = string.sub(member, 1, 5) == 'call:' and redis.call('HGET', consumers, member) or ''
    for id in string.gmatch(record, '%d+%-%d+') do
      if oldest and not is_before(id, oldest[1]) then
        break
      end
      local entry = not is_before(id, first[1]) and redis.call('XRANGE', stream, id, id)[1]
      if entry then
        oldest = entry
        break
      end
    end
  end
  return oldest
end

-- Return the oldest entry that was received, is not acknowledged, and was not deleted from the stream.
local function oldest_received(group, leases, consumers, is_deleted)
  local oldest
  for _, one in ipairs(redis.call('XPENDING', stream, group, first[1], '+', 100)) do
    oldest = redis.call('XRANGE', stream, one[1], one[1])[1]
    if oldest then
      break
    end
    is_deleted = true
  end
  if is_deleted then -- the first entry of a call's record alone is pending, and may be the deleted one
    oldest = oldest_of_calls(leases, consumers, oldest)
  end
  if oldest then
    local how = string.sub(redis.call('HGET', consumers, oldest[1]) or '', 1, 1)
    return describe(oldest, how == 'H' and 'handedBack' or how == 'W' and 'waiting' or 'leased')
  end
end

local function last_receive(group, name)
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local one = {}
    for i = 1, #info, 2 do
      one[info[i]] = info[i + 1]
    end
    if one.name == name then
      return digits(clock('') - one.idle)
    end
  end
  return ''
end

local answer = {}
for i = 3, #ARGV do
  local group, leases, consumers = ARGV[i], KEYS[2 * i - 4], KEYS[2 * i - 3]
  local at = positions[group]
  if at then
    local next_one = redis.call('XRANGE', stream, '(' .. at.last, '+', 'COUNT', 1)[1]
    local oldest = at.oldest and first and oldest_received(group, leases, consumers, is_before(at.oldest, first[1]))
    oldest = oldest or next_one and describe(next_one, 'waiting')
    local ready = next_one and tonumber((string.match(next_one[1], '^%d+')))
    local ended = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])
    if ended and ended <= now then
      ready = math.min(ready or ended, ended)
    end
    local filter, handed_back, in_calls, foreign =
      unpack(redis.call('HMGET', consumers, 'filter', 'handedBack', 'inCalls', 'foreign'))
    answer[#answer + 1] = {
      count_waiting(next_one, at.last, at.lag),
      at.pending + (tonumber(in_calls or '') or 0),
      tonumber(handed_back or '') or 0,
      filter or '',
      last_receive(group, ARGV[2]),
      ready and digits(ready) or '',
      oldest or {},
      foreign or '',
    }
  else
    local is_empty = redis.call('EXISTS', stream) == 0 or redis.call('XLEN', stream) == 0
    answer[#answer + 1] = is_empty and { 0, 0, 0, '', '', '', {}, '' } or ''
  end
end
return answer
