-- Return a function from a topic to the lowest mark of the pauses that cover it, or infinity if none does. It is made
-- only when a message needs it, because making functions takes time in each call.
local mark_of
local function marks_of(paused)
  -- @include glob
  local marks, globs, found = {}, {}, {}
  for mark, match in string.gmatch(paused, '(%d+) ([^\n]+)') do
    if string.find(match, '[*?]') then
      globs[#globs + 1] = { glob(match), tonumber(mark) }
    else
      marks[match] = tonumber(mark)
    end
  end
  return function(topic)
    local lowest = found[topic]
    if not lowest then
      lowest = marks[topic] or math.huge
      for _, one in ipairs(globs) do
        if one[2] < lowest and matches(one[1], topic) then
          lowest = one[2]
        end
      end
      found[topic] = lowest
    end
    return lowest
  end
end
