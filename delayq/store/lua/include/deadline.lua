-- The caller gives up some day, and what it is told then has to stay true: the last argument is the time (ms, by the clock of
-- this Redis) until which it waits, or ''. A call that comes later, as from a connection that was stuck, does nothing.
local deadline = tonumber(table.remove(ARGV))
if deadline then
  local time = redis.call('TIME')
  local late = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if late > deadline then
    return redis.error_reply('EXPIRED ' .. string.format('%.0f', late))
  end
end
