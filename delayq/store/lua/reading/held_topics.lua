-- Return a page of the topics of which a queue holds messages, with the length of each topic's set. It is more than the
-- number of messages if some were cancelled. The caller reads page after page. Therefore no call blocks Redis for long,
-- however many topics there are.
-- KEYS: state.
-- ARGV: cursor ('0' = the first page), a pattern of the topics, about how many fields of the state to look at.
-- Returns: {next cursor ('0' = last page), then a topic and a number, and so on}. Two pages may have the same topic.
-- @flags no-writes
local state = KEYS[1]
local sub = string.sub
local page = redis.call('HSCAN', state, ARGV[1], 'MATCH', 'parked:h:' .. ARGV[2], 'COUNT', ARGV[3])
local answer, fields = { page[1] }, page[2]
for i = 1, #fields, 2 do
  local topic = sub(fields[i], 10)
  local set = sub(state, 1, -6) .. 'parked:h:' .. topic
  answer[i + 1], answer[i + 2] = topic, redis.call('ZCARD', set)
end
return answer
