-- List other layouts, unless somebody else did meanwhile.
-- KEYS: meta
-- ARGV: the layouts as they were read, the layouts to list, the deadline (see include/deadline)
-- Returns: the layouts listed now
-- @flags allow-oom
-- @promise
-- @include clock deadline
local listed = redis.call('HGET', KEYS[1], 'layouts')
if listed == ARGV[1] then
  redis.call('HSET', KEYS[1], 'layouts', ARGV[2])
  return ARGV[2]
end
return listed
