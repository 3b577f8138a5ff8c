-- Lease messages of a stream to one call of a consumer group.
-- KEYS: stream, leases, consumers, what this call received.
-- ARGV: now, group, this call's name, most messages, lease (ms), start, filter, most leases, name of the consumer.
--   A start is '0', '$' or an entry id; '' makes no group.
--   The filter is '' for everything, else tags, a NUL byte between two. Last the deadline (see include/deadline).
-- Returns: {'filter', the group's own} if that differs. {'unknown'} without a start if there is no such group.
--   Else {'ok', now, end of the next lease or pause or '', messages}.
--   A message is: entry id, leases, hand-backs, '1' if it has had too many leases, the reasons so far, its fields.
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local stream, leases, consumers, received = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, group, call, most = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local life, start, filter, most_leases, name = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

local known = redis.call('HGET', consumers, 'filter')
if not known and start == '' then
  return { 'unknown' }
elseif not known then
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
  if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
    return made
  end
  redis.call('HSET', consumers, 'filter', filter)
elseif known ~= filter then
  return { 'filter', known }
end

local wanted = {}
for tag in string.gmatch(filter, '[^%z]+') do
  wanted[tag] = true
end

-- Whether an entry is for the group: it matches the filter, and no other group had given it up before it was redriven.
local function matches(fields)
  local tags = ''
  for i = 1, #fields, 2 do
    if fields[i] == 'tags' then
      tags = fields[i + 1]
    elseif fields[i] == 'p:' .. name .. '-group' and fields[i + 1] ~= group then
      return false
    end
  end
  return filter == '' or wanted[tags] or false
end

local answer, taken = { 'ok', digits(now), '' }, {}

-- Add an entry to the answer. Its state is 'L' (leased) or 'H' (handed back), the call, the count of leases, the count of
-- hand-backs, and the reasons, a line each.
local function add(id, fields, count, backs, reasons)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = id, count, backs
  answer[n + 4], answer[n + 5], answer[n + 6] = count - backs > most_leases and '1' or '', reasons, fields
  taken[#taken + 1] = id
  redis.call('HSET', consumers, id, 'L ' .. table.concat({ call, count, backs, reasons }, ' '))
  redis.call('ZADD', leases, digits(now + life), id)
end

local function forget(id)
  redis.call('XACK', stream, group, id)
  redis.call('HDEL', consumers, id)
  redis.call('ZREM', leases, id)
end

local before = redis.call('GET', received)
if before then -- the reply was lost: the same messages, as far as this call still has their leases
  for id in string.gmatch(before, '[^ ]+') do
    local _, by, count, backs, reasons = string.match(redis.call('HGET', consumers, id) or '', '^(L) (%S+) (%d+) (%d+) (.*)$')
    local entry = by == call and redis.call('XRANGE', stream, id, id)[1]
    if entry then
      add(id, entry[2], tonumber(count), tonumber(backs), reasons)
    end
  end
else
  for _, id in ipairs(redis.call('ZRANGE', leases, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, most)) do
    local how, _, count, backs, reasons = string.match(redis.call('HGET', consumers, id) or '', '^(%u) (%S+) (%d+) (%d+) (.*)$')
    local entry = how and redis.call('XRANGE', stream, id, id)[1]
    if how == 'H' then
      redis.call('HINCRBY', consumers, 'handedBack', -1)
    end
    if entry then
      add(id, entry[2], tonumber(count) + 1, tonumber(backs), reasons)
    else
      forget(id) -- the stream was trimmed
    end
  end
  -- An entry that does not match is acknowledged unseen. A call looks at a bounded number of entries.
  local looked = 0
  while #taken < most and looked < 2000 do
    local left = most - #taken
    local read = redis.call('XREADGROUP', 'GROUP', group, name, 'COUNT', left, 'STREAMS', stream, '>')
    local entries = read and read[1][2] or {}
    for _, entry in ipairs(entries) do
      if matches(entry[2]) then
        add(entry[1], entry[2], 1, 0, '')
      else
        redis.call('XACK', stream, group, entry[1])
      end
    end
    looked = looked + #entries
    if #entries < left then
      break
    end
  end
  if #taken > 0 then
    redis.call('SET', received, table.concat(taken, ' '), 'PX', digits(math.max(life, 60000)))
  end
end
answer[3] = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or ''
return answer
