-- Let a queue take no new message, for ever: what it does not have has moved to the next layout.
-- KEYS: state audit
-- ARGV: entry (see include/audit) or '', the deadline (see include/deadline)
-- Returns: 1 | 0 (it was closed before)
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
