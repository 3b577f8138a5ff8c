-- Return the answer for an id that is not here. A closed queue never gets the id again, so the next layout may have it.
local function unknown(state)
  return redis.call('HEXISTS', state, 'closed') == 1 and 'moved' or 'not_found'
end
