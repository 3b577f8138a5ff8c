-- Who changes something by hand is written down by the script that changes it: of the entry that the caller gave, about how
-- many are kept, for how long (ms), and who it was. `noted` is what was changed.
local most, kept, by = string.match(entry, '^(%d+) (%d+) (.*)$')
redis.call('XADD', audit, 'MAXLEN', '~', most, '*', 'by', by, 'on', table.concat(noted, '\n'))
redis.call('PEXPIRE', audit, kept)
