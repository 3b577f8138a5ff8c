-- What `final` has too much of, or for too long, is forgotten, oldest first and at most 2,000 at a time, and with each id its
-- member in the index.
local function forget(final, index, count)
  if count > 0 then
    local last = math.min(count, 2000) - 1
    local members = {}
    for _, id in ipairs(redis.call('ZRANGE', final, 0, last)) do
      if string.find(id, '.%.%x%x%x%x$') then
        members[#members + 1] = asked_member(id)
      end
    end
    if #members > 0 then
      redis.call('ZREM', index, unpack(members))
    end
    redis.call('ZREMRANGEBYRANK', final, 0, last)
  end
end

local function forget_over(final, index, most)
  forget(final, index, redis.call('ZCARD', final) - most)
end

-- `now` is the earlier of two clocks; `most` is infinite where nothing was added.
local function forget_old(final, index, now, window, most)
  local old = redis.call('ZCOUNT', final, '-inf', '(' .. ended(now - window, FORWARDED))
  forget(final, index, most == math.huge and old or math.max(old, redis.call('ZCARD', final) - most))
end
