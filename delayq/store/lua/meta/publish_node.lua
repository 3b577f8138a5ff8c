-- Write the line of a worker, also when Redis is full: a worker sends only while others can read its line.
-- KEYS: nodes.
-- ARGV: the name of the worker, its line.
-- Returns: the former line, or ''.
-- @flags allow-oom
local before = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return before or ''
