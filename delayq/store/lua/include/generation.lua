-- Generations of a queue are numbered; each is 7 digits of base 64, one for all that a script writes.
local function generation_of(number)
  local digits = '0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz'
  local text = ''
  while number > 0 do
    local digit = number % 64
    text = string.sub(digits, digit + 1, digit + 1) .. text
    number = (number - digit) / 64
  end
  return string.sub('000000' .. text, -7)
end
