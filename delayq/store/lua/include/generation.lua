-- The next generation of this queue: 7 digits of base 64, one for all that a script writes.
local DIGITS = '0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz'
local function next_generation(state)
  local number = redis.call('HINCRBY', state, 'generation', 1)
  local text = ''
  for _ = 1, 7 do
    local digit = number % 64 + 1
    text = string.sub(DIGITS, digit, digit) .. text
    number = math.floor(number / 64)
  end
  return text
end
