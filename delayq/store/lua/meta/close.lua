-- Close a queue permanently, so that it accepts no new message. Any message that it does not have belongs to the next
-- layout.
-- KEYS: state audit.
-- ARGV: entry or '', deadline. See include/audit and include/deadline.
-- Returns: 1, or 0 if it was closed before.
-- @flags allow-oom
-- @promise
-- @include clock deadline
local audit, entry = KEYS[2], ARGV[1]
local closed = redis.call('HSETNX', KEYS[1], 'closed', '1')
local noted = { 'closed' }
if closed == 1 and entry ~= '' then
  -- @include audit
end
return closed
