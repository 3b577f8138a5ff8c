-- A call that gave a message another due is remembered for the window after that due. Once the due has come, the same call gets
-- the answer of the first, unless somebody withdrew the message: a caller that lost the reply would hear only that it has gone.
-- A member is the id, a NUL and the call; its score is the due that the call gave.
local MOST_CALLS = 200000

-- What somebody did to the message since counts, and not what the call answered before.
local WITHDRAWN = { cancelled = true, removed_in_flight = true, discarded = true }

-- The due that the same call gave before, in digits; nil if there was none, if that due is still to come, or if the message, of
-- which the script would answer `answer`, was withdrawn since. `by_both` is the earlier of two clocks.
local function due_of_call(calls, id, call, answer, now, by_both, window)
  local due = not WITHDRAWN[answer] and tonumber(redis.call('ZSCORE', calls, id .. '\0' .. call) or '')
  return due and due <= now and due >= by_both - window and digits(due) or nil
end

-- Remember calls: dues and members, one after the other. Those that are too old or too many are forgotten.
local function remember_calls(calls, made, now, window)
  redis.call('ZADD', calls, unpack(made))
  local old = redis.call('ZCOUNT', calls, '-inf', '(' .. digits(now - window))
  local beyond = math.min(math.max(old, redis.call('ZCARD', calls) - MOST_CALLS), 2000)
  if beyond > 0 then
    redis.call('ZREM', calls, unpack(redis.call('ZRANGE', calls, 0, beyond - 1)))
  end
  local last = redis.call('ZRANGE', calls, -1, -1, 'WITHSCORES')[2]
  if last then
    redis.call('PEXPIRE', calls, digits(math.max(0, last - now) + window + 60000))
  end
end
