-- Wake the pull job if `due` is earlier than what it sleeps for, or not after what it has pulled.
-- What is in flight stays the head of the queue, so 'became the head' would not do.
local function wake(state, channel, due)
  local known = redis.call('HMGET', state, 'sleep_until', 'watermark')
  local sleep_until = tonumber(known[1] or '') or math.huge
  local watermark = tonumber(known[2] or '') or -1
  if due < sleep_until then
    redis.call('HSET', state, 'sleep_until', string.format('%.0f', due))
  elseif due > watermark then
    return
  end
  redis.call('PUBLISH', channel, string.format('%.0f', due))
end
