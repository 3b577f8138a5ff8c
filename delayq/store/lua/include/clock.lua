-- Return the ms and the µs within it. `given` is the time that a test passes, or ''.
local milli, micro, milli_digits -- stand still while a script runs
local function clock(given)
  if given ~= '' then
    return tonumber(given), 0
  end
  if not milli then
    local time = redis.call('TIME')
    milli_digits = time[1] .. string.sub('00000' .. time[2], -6, -4)
    milli, micro = tonumber(milli_digits), time[2] % 1000
  end
  return milli, micro
end

-- Formatting a number costs the server as much as a Redis call. Mostly the number is the time, which TIME returns as
-- digits.
local function digits(number)
  return number == milli and milli_digits or string.format('%.0f', number)
end
