-- End a transaction: if `remove` set something aside, put it back, and take back what was appended.
-- KEYS: pool attempts keys final, the names that these four get aside, then the streams
-- ARGV: of each stream how many messages it was to take, the id and the due of the first
-- Returns: 1 if all was appended, 0 if nothing was
-- @flags allow-oom
if redis.call('EXISTS', KEYS[5]) == 0 then
  return 1
end
for i = 1, 4 do
  redis.call('DEL', KEYS[i])
  if redis.call('EXISTS', KEYS[i + 4]) == 1 then
    redis.call('RENAME', KEYS[i + 4], KEYS[i])
  end
end
for i = 9, #KEYS do
  local at = 3 * i - 26
  local newest = redis.pcall('XREVRANGE', KEYS[i], '+', '-', 'COUNT', ARGV[at])
  local taken = {}
  for _, entry in ipairs(newest.err and {} or newest) do
    taken[#taken + 1] = entry[1]
    if entry[2][2] == ARGV[at + 1] and entry[2][12] == ARGV[at + 2] then
      redis.call('XDEL', KEYS[i], unpack(taken))
      break
    end
  end
end
return 0
