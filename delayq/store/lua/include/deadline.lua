-- The caller gives up at some time, and the answer that it gets then has to stay true. The last argument is the time
-- (ms, by this Redis server's clock) until which the caller waits, or ''. A call that arrives later, for example
-- through a stuck connection, does nothing.
local deadline = table.remove(ARGV)
if deadline ~= '' and clock('') > tonumber(deadline) then
  return redis.error_reply('EXPIRED ' .. digits(clock('')))
end
