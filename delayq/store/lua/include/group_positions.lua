-- Return the consumer groups of a stream, by name. Groups that no consumer of delayq made are among them. Each has `last`,
-- the entry id up to which it has received. `pending` is the number of entries that it has received and not
-- acknowledged. `oldest` is the first of them; without one, the group has acknowledged everything up to `last`. `lag` is
-- the number of entries behind `last`, or nil if Redis does not know it.
local function group_positions(stream)
  local found = {}
  local groups = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
  for _, info in ipairs(groups) do
    local one = {}
    for i = 1, #info, 2 do
      one[info[i]] = info[i + 1] or nil
    end
    local oldest = one.pending > 0 and redis.call('XPENDING', stream, one.name)[2] or nil
    found[one.name] = { last = one['last-delivered-id'], pending = one.pending, lag = one.lag, oldest = oldest }
  end
  return found
end
