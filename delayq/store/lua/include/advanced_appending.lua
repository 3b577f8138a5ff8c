-- The ids of entries have the time that `advance` has moved, as all other times have. A group begins at such a time, and a
-- retention counts from it. If the clock of the machine was set back, Redis gives the next id.
local run = pcall
pcall = function(command, ...)
  local words, at = { ... }, nil
  for i = 1, command == 'XADD' and #words or 0 do
    at = at or words[i] == '*' and i or nil
  end
  if not at then
    return run(command, ...)
  end
  clock('')
  words[at] = milli_digits .. '-*'
  local entry = run(command, unpack(words))
  if entry.err and string.find(entry.err, 'equal or smaller', 1, true) then
    words[at] = '*'
    entry = run(command, unpack(words))
  end
  return entry
end
