-- ms and the µs within it; `given` is the time that a test hands in, or ''.
local time -- stands still while a script runs
local function clock(given)
  if given ~= '' then
    return tonumber(given), 0
  end
  time = time or redis.call('TIME')
  local micro = tonumber(time[2])
  local milli = math.floor(micro / 1000)
  return tonumber(time[1]) * 1000 + milli, micro - milli * 1000
end

local function digits(number)
  return string.format('%.0f', number)
end
