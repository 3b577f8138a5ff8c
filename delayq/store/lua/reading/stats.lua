-- Return the figures of a queue, each in O(log n) or less, except for the names of its parked sets. There may be one
-- for each held topic and each ordering key that failed. So most callers want those of routes and some of topics. Redis
-- finds these without a table of all names in Lua, which takes five times as long.
-- KEYS: state queue pool final dead.
-- ARGV: now, how many names of topics' parked sets are wanted, then the wanted fields of the state.
--   With a number, no names for ordering keys are returned. '' returns all names and all fields.
-- Returns: {now, queue length, due messages, due time of the head or '', pool length, remembered ids, dead letters,
--   fields of the state ...}.
-- @flags no-writes
-- @include clock
local state, queue, pool, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = clock(ARGV[1])
local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
local answer = {
  digits(now), redis.call('ZCARD', queue), redis.call('ZCOUNT', queue, '-inf', digits(now)), head[2] or '',
  redis.call('HLEN', pool), redis.call('ZCARD', final), redis.call('ZCARD', dead),
}
local function add(field, value)
  local n = #answer
  answer[n + 1], answer[n + 2] = field, value
end

local function add_names(match, most)
  local cursor = '0'
  while cursor and most > 0 do
    local page = redis.call('HSCAN', state, cursor, 'MATCH', match, 'COUNT', 1000)
    for i = 1, math.min(#page[2], 2 * most), 2 do
      add(page[2][i], page[2][i + 1])
    end
    most = most - #page[2] / 2
    cursor = page[1] ~= '0' and page[1]
  end
end

if ARGV[2] == '' then
  local fields = redis.call('HGETALL', state)
  for i = 1, #fields, 2 do
    add(fields[i], fields[i + 1])
  end
  return answer
end
for i, value in ipairs(redis.call('HMGET', state, unpack(ARGV, 3))) do
  if value then
    add(ARGV[i + 2], value)
  end
end
add_names('parked:t:*', math.huge)
add_names('parked:h:*', tonumber(ARGV[2]))
return answer
