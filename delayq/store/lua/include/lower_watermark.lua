-- Both clocks were far ahead when the watermark was written, and no longer are. Without this, no cancel would be
-- certain until that time. Messages between now and the watermark may have been handed out, so they become exposed.
-- This goes from the top, one page at a time, and the watermark comes down to the end of the page. A message that is
-- scheduled there later was never handed out.
local lowest = redis.call('ZCOUNT', queue, '-inf', now_text)
local stop = redis.call('ZCOUNT', queue, '-inf', digits(watermark))
local last = redis.call('HGET', state, 'lowered_to') -- among equal dues
if last and tonumber(redis.call('ZSCORE', queue, last) or '') == watermark then
  stop = redis.call('ZRANK', queue, last)
end
local first = math.max(lowest, stop - PAGE)
local page = stop > first and redis.call('ZRANGE', queue, first, stop - 1, 'WITHSCORES') or {}
for i = 1, #page, 2 do
  redis.call('HSETNX', attempts_key, sub(page[i], 1, -9), '0')
end
local from = tonumber(redis.call('HGET', state, 'lowered_from') or '') or -1
if watermark > from then -- a pause has to know: what is set aside is not exposed here
  redis.call('HSET', state, 'lowered_from', digits(watermark))
end
if first > lowest then
  redis.call('HSET', state, 'watermark', page[2], 'lowered_to', page[1])
else
  redis.call('HSET', state, 'watermark', now_text)
  redis.call('HDEL', state, 'lowered_to')
end
