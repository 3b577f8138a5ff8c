-- What the owner names of topics, from ARGV[named_at] on: stream (its place behind the key `streams_behind`, or '' for general) and
-- MAXLEN ('' = none) of each known one; then of each limited one the name that it shares with others ('' = none), and how many
-- permits all of that name have. What else the owner names begins at ARGV[named_end].
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
  -- How many permits are still valid, of 'N' or 'N@TIME N@TIME ...': this call may have waited in a server that stood still. Many
  -- topics name the same.
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
