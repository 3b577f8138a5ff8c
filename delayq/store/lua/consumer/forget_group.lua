-- Remove the records of a consumer group, after the group itself was deleted. A record that differs from the one that the
-- caller has read before stays: a consumer has made the group again.
-- KEYS: groups, makings, audit
-- ARGV: entry or '', what the entry names. Then of each record: field, record, making or ''. Last the deadline (see
--   include/deadline). See include/audit for the entry.
-- Returns: how many records were removed, and how many others were found
-- @flags allow-oom
-- @promise
-- @include clock deadline
local groups, makings, audit, entry, noted = KEYS[1], KEYS[2], KEYS[3], ARGV[1], { ARGV[2] }
local removed, others = 0, 0
for i = 3, #ARGV, 3 do
  local field = ARGV[i]
  local record, making = redis.call('HGET', groups, field), redis.call('HGET', makings, field)
  if record == ARGV[i + 1] and (making or '') == ARGV[i + 2] then
    redis.call('HDEL', groups, field)
    redis.call('HDEL', makings, field, 'filter ' .. field)
    removed = removed + 1
  elseif record then
    others = others + 1
  end
end
if entry ~= '' and removed > 0 then
  -- @include audit
end
return { removed, others }
