-- Wake the pull job if `due` is earlier than what it sleeps for, or not after what it has pulled.
-- What is in flight stays the head of the queue, so 'became the head' would not do.
local function wake(state, channel, due, sleep_until, watermark)
  if due < (tonumber(sleep_until or '') or math.huge) then
    redis.call('HSET', state, 'sleep_until', string.format('%.0f', due))
  elseif due > (tonumber(watermark or '') or -1) then
    return
  end
  -- If this is refused, the pull job looks within a second all the same, and the change is made already.
  redis.pcall('PUBLISH', channel, string.format('%.0f', due))
end
