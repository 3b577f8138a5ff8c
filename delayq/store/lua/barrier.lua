-- A tiny write, so that a WAIT behind it also covers what a repeated call found done already.
-- KEYS: state
-- ARGV: none
-- Returns: 'ok'
-- @flags allow-oom
redis.call('HSET', KEYS[1], 'barrier', '1')
return 'ok'
