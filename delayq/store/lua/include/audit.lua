-- Who changes something by hand is written down by the script that changes it: of the entry that the caller gave, about how
-- many are kept, for how long (ms), and who it was. `noted` is what was changed. An entry names what 4 KB hold, one thing at least,
-- and how many there were. An act that takes several scripts is one entry of each stream: the last one is taken into this one.
local most, kept, by = string.match(entry, '^(%d+) (%d+) (.*)$')
local on, changed, since = '', #noted, ''
if string.find(by, '"act":"', 1, true) then
  local last = redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
  if last and last[2][2] == by then
    on, changed, since = last[2][4], changed + last[2][6], last[2][8]
    if since == '' then
      since = string.match(last[1], '^%d+')
    end
    redis.call('XDEL', audit, last[1])
  end
end
for _, line in ipairs(noted) do
  if on ~= '' and #on + #line >= 4096 then
    break
  end
  on = on == '' and line or on .. '\n' .. line
end
redis.call('XADD', audit, 'MAXLEN', '~', most, '*', 'by', by, 'on', on, 'n', changed, 'since', since)
redis.call('PEXPIRE', audit, kept)
