-- Move the time of a development server forward. Any other server refuses, because its meta has no field `advanced`.
-- KEYS: meta.
-- ARGV: the wanted lead over the machine's clock (ms), channel.
-- Returns: the lead now (ms), or false if this is no development server.
local advanced = redis.call('HGET', KEYS[1], 'advanced')
if not advanced then
  return false
end
-- A repeated call changes nothing, because it names the same sum. Time never goes back.
if tonumber(ARGV[1]) > tonumber(advanced) then
  redis.call('HSET', KEYS[1], 'advanced', ARGV[1])
  redis.pcall('PUBLISH', ARGV[2], ARGV[1])
  return tonumber(ARGV[1])
end
return tonumber(advanced)
