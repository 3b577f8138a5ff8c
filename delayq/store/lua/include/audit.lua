-- The script that makes a manual change also writes its audit entry, so neither exists without the other. The caller's
-- `entry` has about how many entries to keep, for how long (ms), and the actor. `noted` lists the changes. An audit
-- entry names as many changes as fit in 4 KB, at least one, and their total number. An action of several scripts is one
-- entry in each stream: the new entry absorbs the last one.
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
