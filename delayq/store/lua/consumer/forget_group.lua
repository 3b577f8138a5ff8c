-- Remove the records of a consumer group, after the group itself was deleted.
-- KEYS: groups audit
-- ARGV: entry or '', what the entry names. Then the fields. Last the deadline (see include/deadline).
--   See include/audit for the entry.
-- Returns: how many records were removed
-- @flags allow-oom
-- @promise
-- @include clock deadline
local groups, audit, entry, noted = KEYS[1], KEYS[2], ARGV[1], { ARGV[2] }
local removed = 0
for i = 3, #ARGV do
  removed = removed + redis.call('HDEL', groups, ARGV[i])
end
if entry ~= '' and removed > 0 then
  -- @include audit
end
return removed
