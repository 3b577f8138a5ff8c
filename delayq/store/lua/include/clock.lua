-- ms and the µs within it; `given` is the time that a test hands in, or ''.
local milli, micro -- stand still while a script runs
local function clock(given)
  if given ~= '' then
    return tonumber(given), 0
  end
  if not milli then
    local time = redis.call('TIME')
    local micros = tonumber(time[2])
    micro = micros % 1000
    milli = time[1] * 1000 + (micros - micro) / 1000
  end
  return milli, micro
end

local function digits(number)
  return string.format('%.0f', number)
end
