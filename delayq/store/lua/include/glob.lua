-- Return a pattern of topics, with `*` and `?`, as the parts between its stars. Each part has its length, and a Lua
-- pattern without repetitions. Therefore no topic takes long to match, whatever the pattern is.
local function glob(pattern)
  local parts = {}
  for part in string.gmatch(pattern .. '*', '([^*]*)%*') do
    local plain = string.gsub(string.gsub(part, '[^%w?]', '%%%0'), '%?', '.')
    parts[#parts + 1] = { #part, plain, '^' .. plain .. '$' }
  end
  return parts
end

local function matches(parts, topic)
  local last = #parts
  if last == 1 then
    return string.find(topic, parts[1][3]) ~= nil
  end
  local _, at = string.find(topic, '^' .. parts[1][2])
  for i = 2, last - 1 do
    if not at then
      return false
    end
    _, at = string.find(topic, parts[i][2], at + 1)
  end
  local tail = #topic - parts[last][1]
  return at ~= nil and tail >= at and string.find(topic, parts[last][3], tail + 1) ~= nil
end
