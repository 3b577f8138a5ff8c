-- Record that consumers of a group receive a stream, before the group is made, so that nobody has to search for groups.
-- KEYS: groups
-- ARGV: now, field, first and last queue of a stream for each queue ('' for a single stream), most records.
--   The field is topic, group and stream, a space between two. Last the deadline (see include/deadline).
-- Returns: 'ok' | 'full'
-- @flags allow-oom
-- @promise
-- @include clock deadline
local groups, now, field, first, last = KEYS[1], clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local known = redis.call('HGET', groups, field)
if not known and redis.call('HLEN', groups) >= tonumber(ARGV[5]) then
  return 'full'
end
local since = known and string.match(known, '^%d+') or digits(now)
if first then -- entries of the queues of an older layout may still be unread
  local old_first, old_last = string.match(known or '', '^%d+ (%d+) (%d+)$')
  first, last = math.min(first, tonumber(old_first) or first), math.max(last, tonumber(old_last) or last)
  since = table.concat({ since, digits(first), digits(last) }, ' ')
end
if since ~= known then
  redis.call('HSET', groups, field, since)
end
return 'ok'
