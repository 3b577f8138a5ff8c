-- Remove the tickets of messages that are appended in the same transaction, if each stream has just shown that it takes
-- them; otherwise set aside what the rest of the transaction removes, so that it removes nothing.
-- KEYS: state queue guard, pool attempts keys final, the names that these four get aside, then the streams
-- ARGV: the first and the last ticket, how many there are; then of each stream the id and the due of its first message
-- Returns: how many were removed: all, or 0
-- @flags allow-oom
local state, queue, guard = KEYS[1], KEYS[2], KEYS[3]
local first, last = redis.call('ZRANK', queue, ARGV[1]), redis.call('ZRANK', queue, ARGV[2])
-- Others stand between them if they were scheduled or unparked meanwhile.
local good = first and last and last - first + 1 == tonumber(ARGV[3])
-- An error in a transaction stops nothing behind it. A stream that took the first message takes them all, unless its
-- ids end here: a key of another type never does.
for i = 12, #KEYS do
  local newest = redis.pcall('XREVRANGE', KEYS[i], '+', '-', 'COUNT', '1')
  local entry = not newest.err and newest[1]
  good = good and entry and entry[2][2] == ARGV[2 * i - 20] and entry[2][12] == ARGV[2 * i - 19]
    and string.sub(entry[1], 1, 20) ~= '18446744073709551615'
end
if good then
  redis.call('ZREMRANGEBYRANK', queue, first, last)
  redis.call('HINCRBY', state, 'forwarded', ARGV[3])
  redis.call('HINCRBY', guard, 'changes', 1)
  return tonumber(ARGV[3])
end
for i = 4, 7 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[i + 4])
  end
end
return 0
