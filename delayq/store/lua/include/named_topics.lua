-- Read the topics that the owner names, from ARGV[named_at] on. A known topic has a stream (its place behind the key
-- `streams_behind`, or '' for general) and a MAXLEN ('' = none). A limited topic has the name that it shares with
-- others ('' = none), and the permits of all topics of that name. The owner's other arguments begin at ARGV[named_end].
local streams, trims, n_streams, bounds, shares, spends = {}, {}, 0, nil, nil, nil
local limited_at = named_at + 3 * n_known
local named_end = limited_at + 3 * n_limited
for i = named_at, limited_at - 1, 3 do
  local place = tonumber(ARGV[i + 1])
  n_streams = place or n_streams
  streams[ARGV[i]] = place and KEYS[streams_behind + place] or false
  trims[ARGV[i]] = ARGV[i + 2] ~= '' and ARGV[i + 2]
end
if n_limited > 0 then
  bounds, shares = {}, {}
  -- Return how many permits of 'N' or 'N@TIME N@TIME ...' are still valid: this call may have waited in a stalled
  -- server. Many topics have the same text, so each text is read once.
  local counts = {}
  local function valid_permits(most)
    local count = counts[most] or tonumber(most)
    if not count then
      count = 0
      for some, by in string.gmatch(most, '(%d+)@(%d+)') do
        count = count + (tonumber(by) > here and tonumber(some) or 0)
      end
      counts[most] = count
    end
    return count
  end
  for i = limited_at, named_end - 1, 3 do
    local share = shares[ARGV[i + 1]] or { most = valid_permits(ARGV[i + 2]) }
    if ARGV[i + 1] ~= '' then
      shares[ARGV[i + 1]] = share
    end
    bounds[ARGV[i]] = share
  end
end
