-- A call that gives a message another due time is remembered until the window after that time ends. Once that time has
-- come, a repeated call gets the first answer, unless somebody withdrew the message. Without this, a caller that lost
-- the reply would only learn that the message is gone. A member is the id, a NUL byte and the call. Its score is the
-- new due time.
local MOST_CALLS = 200000

-- After one of these changes, the answer is the change and not the first answer of the call.
local WITHDRAWN = { cancelled = true, removed_in_flight = true, discarded = true }

-- Return the due time that the same call gave before, in digits. Return nil if there was no such call, if the due time
-- is still to come, or if the message was withdrawn since. `answer` is the script's answer without this. `by_both` is
-- the earlier of two clocks.
local function due_of_call(calls, id, call, answer, now, by_both, window)
  local due = not WITHDRAWN[answer] and tonumber(redis.call('ZSCORE', calls, id .. '\0' .. call) or '')
  return due and due <= now and due >= by_both - window and digits(due) or nil
end

-- Remember calls. `made` has a due time and a member for each. Calls that are too old or too many are forgotten.
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
