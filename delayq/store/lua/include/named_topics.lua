-- Read the topics that the owner names, from ARGV[named_at] on. A known topic has a stream (its place behind the key
-- `streams_behind`, or '' for general) and a MAXLEN ('' = none). The owner's other arguments begin at ARGV[named_end].
-- `bounds` has the permits by which messages of limited topics are appended.
local streams, trims, n_streams, bounds, spends = {}, {}, 0, {}, nil
local NO_PERMITS, named_end = { most = 0 }, named_at + 3 * n_known
for i = named_at, named_end - 1, 3 do
  local place = tonumber(ARGV[i + 1])
  n_streams = place or n_streams
  streams[ARGV[i]] = place and KEYS[streams_behind + place] or false
  trims[ARGV[i]] = ARGV[i + 2] ~= '' and ARGV[i + 2]
end
