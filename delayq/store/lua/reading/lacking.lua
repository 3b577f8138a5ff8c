-- Return the rights that the user of this connection does not have.
-- KEYS: none, because the script only asks about them.
-- ARGV: number of keys, number of channels, the keys, the channels, the commands ('hset', 'xinfo|stream').
-- Returns: the missing rights, or false if this server cannot check them.
--   A right is '+hset', '~' and a key, or '&' and a channel. Commands are checked only if the keys and channels are
--   allowed.
-- @flags no-writes
local may = redis.acl_check_cmd
if not may then
  return false
end
local keys, channels = 2 + tonumber(ARGV[1]), tonumber(ARGV[2])
local lacking = {}
for i = 3, keys do
  if not may('EVAL', '', '1', ARGV[i]) then -- it may read and write there
    lacking[#lacking + 1] = '~' .. ARGV[i]
  end
end
for i = keys + 1, keys + channels do
  if not (may('PUBLISH', ARGV[i], '') or may('SUBSCRIBE', ARGV[i])) then
    lacking[#lacking + 1] = '&' .. ARGV[i]
  end
end
if #lacking > 0 then
  return lacking
end

-- The server reads the arguments to find the keys among them. It can crash if there are too few, so each command gets enough.
local key, channel = ARGV[3], ARGV[keys + 1]
local special = { eval = { '', '0' }, evalsha = { '', '0' }, publish = { channel, '' }, subscribe = { channel },
  xread = { 'streams', key, '0' } }
for i = keys + channels + 1, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '[^|]+') do
    words[#words + 1] = word
  end
  for _, one in ipairs(special[ARGV[i]] or { key, key, key, key, key }) do
    words[#words + 1] = one
  end
  local known, allowed = pcall(may, unpack(words))
  if known and not allowed then -- a command that this server does not have is not missing
    lacking[#lacking + 1] = '+' .. ARGV[i]
  end
end
return lacking
