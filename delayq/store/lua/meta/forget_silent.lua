-- Remove the lines of nodes that have been silent for long, from one page of the nodes' lines.
-- KEYS: nodes.
-- ARGV: now, cursor, how many lines to look at, how long a node must have been silent (ms).
-- Returns: the next cursor ('0' = done).
-- @flags allow-oom
-- @include clock
local now = clock(ARGV[1])
local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #page[2], 2 do
  local seen = tonumber(string.match(page[2][i + 1], '"seen":(%d+)') or '')
  -- A line from the future was written while a clock was ahead. A live node has written another line since then.
  if seen and math.abs(now - seen) > tonumber(ARGV[4]) then
    redis.call('HDEL', KEYS[1], page[2][i])
  end
end
return page[1]
