-- Let a queue take no new message, for ever: what it does not have has moved to the next layout.
-- KEYS: state
-- ARGV: the deadline (see include/deadline)
-- Returns: 1 | 0 (it was closed before)
-- @flags allow-oom
-- @promise
-- @include clock deadline
return redis.call('HSETNX', KEYS[1], 'closed', '1')
