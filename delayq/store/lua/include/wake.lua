-- Wake the pull job if `due` is earlier than the end of its sleep, or not after the watermark. Messages in flight stay
-- at the head of the queue, so 'became the head' would not be enough.
local function wake(state, channel, due, sleep_until, watermark)
  if due < (tonumber(sleep_until or '') or math.huge) then
    redis.call('HSET', state, 'sleep_until', string.format('%.0f', due))
  elseif due > (tonumber(watermark or '') or -1) then
    return
  end
  -- If Redis refuses this, the pull job still looks within a second, and the change is already made.
  redis.pcall('PUBLISH', channel, string.format('%.0f', due))
end
