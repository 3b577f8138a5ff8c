-- List other layouts, unless another process changed the list meanwhile.
-- KEYS: meta audit.
-- ARGV: the layouts as the caller read them, the layouts to list, entry or '', deadline.
--   See include/audit and include/deadline.
-- Returns: the layouts listed now.
-- @flags allow-oom
-- @promise
-- @include clock deadline
local audit, entry = KEYS[2], ARGV[3]
local listed = redis.call('HGET', KEYS[1], 'layouts')
if listed == ARGV[1] then
  redis.call('HSET', KEYS[1], 'layouts', ARGV[2])
  local noted = { ARGV[2] }
  if entry ~= '' then
    -- @include audit
  end
  return ARGV[2]
end
return listed
