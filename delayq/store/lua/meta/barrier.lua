-- A tiny write, so that a WAIT behind it also covers what a repeated call found done already. It adds a field to the first
-- key of the script before it. So that key is a hash, and never a stream or a counter.
-- KEYS: state
-- ARGV: none
-- Returns: {name of the server, its version, '' if it does not say}: whether its WAITAOF can be believed
-- @flags allow-oom
redis.call('HSET', KEYS[1], 'barrier', '1')
return { redis.SERVER_NAME or 'redis', redis.REDIS_VERSION or '' }
