-- Apply the policies to a queue. After this, an owner that does not have them cannot pull from it. A pause has a mark
-- in each queue: the due time up to which its messages may have been handed out before. It keeps the mark for as long
-- as it lasts. A version changes nothing unless its number is greater than the queue's. If two versions have the same
-- number, one was lost, and the policies have to get a higher number.
-- KEYS: state.
-- ARGV: now, wake channel, version, the patterns of the paused topics, deadline. See include/deadline.
-- Returns: {the queue's version now, its pauses}. The pauses are lines of a mark and a pattern.
-- @flags allow-oom
-- @promise
-- @empties
-- @include clock deadline
local state, version = KEYS[1], ARGV[3]
local known = redis.call('HMGET', state, 'policies', 'paused', 'watermark', 'lowered_from')
local stored, paused = known[1] or '', known[2] or ''
if string.sub(version, 1, 10) <= string.sub(stored, 1, 10) then
  return { stored, paused }
end
local marks, lines = {}, {}
for mark, match in string.gmatch(paused, '(%d+) ([^\n]+)') do
  marks[match] = mark
end
-- The watermark may have come down, so messages above it may have been handed out before they were parked.
local mark = math.max(clock(ARGV[1]), tonumber(known[3] or '') or -1, tonumber(known[4] or '') or -1)
for i = 4, #ARGV do
  lines[#lines + 1] = (marks[ARGV[i]] or digits(mark)) .. ' ' .. ARGV[i]
end
paused = table.concat(lines, '\n')
redis.call('HSET', state, 'policies', version)
if paused == '' then
  redis.call('HDEL', state, 'paused')
else
  redis.call('HSET', state, 'paused', paused)
end
redis.pcall('PUBLISH', ARGV[2], 'policies') -- no due: its owner looks at once, and is told that it has others
return { version, paused }
