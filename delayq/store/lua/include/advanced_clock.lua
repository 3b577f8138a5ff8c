-- Stands in for `clock` on a development server: the time of Redis, and what `advance` has added to it. MOVED_IN is the key
-- that has it.
local milli, micro, milli_digits
local function clock(given)
  if given ~= '' then
    return tonumber(given), 0
  end
  if not milli then
    local time = redis.call('TIME')
    milli = time[1] * 1000 + math.floor(time[2] / 1000) + (redis.call('HGET', MOVED_IN, 'advanced') or 0)
    micro = time[2] % 1000
    milli_digits = string.format('%.0f', milli)
  end
  return milli, micro
end

local function digits(number)
  return number == milli and milli_digits or string.format('%.0f', number)
end
