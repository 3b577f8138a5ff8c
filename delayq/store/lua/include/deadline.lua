-- The caller gives up some day, and what it is told then has to stay true: the last argument is the time (ms, by the clock of
-- this Redis) until which it waits, or ''. A call that comes later, as from a connection that was stuck, does nothing.
local deadline = table.remove(ARGV)
if deadline ~= '' and clock('') > tonumber(deadline) then
  return redis.error_reply('EXPIRED ' .. digits(clock('')))
end
