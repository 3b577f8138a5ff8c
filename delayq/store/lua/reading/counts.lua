-- How many members of a sorted set lie between each two edges that follow each other: from the one on, before the other.
-- KEYS: set
-- ARGV: the edges, in order, at most 501
-- Returns: as many numbers, less one
-- @flags no-writes
local answer = {}
for i = 1, #ARGV - 1 do
  answer[i] = redis.call('ZCOUNT', KEYS[1], ARGV[i], '(' .. ARGV[i + 1])
end
return answer
