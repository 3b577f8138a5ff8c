-- Agree on the layout: the first process writes it, the others read it.
-- KEYS: meta.
-- ARGV: number of queues, layout version.
-- Returns: {queues, version, era, lead}.
--   The lead of a development server is how far its time is ahead (ms). For any other server it is false.
-- @flags allow-oom
redis.call('HSETNX', KEYS[1], 'layouts', ARGV[1])
redis.call('HSETNX', KEYS[1], 'version', ARGV[2])
redis.call('HSETNX', KEYS[1], 'era', '0')
return redis.call('HMGET', KEYS[1], 'layouts', 'version', 'era', 'advanced')
