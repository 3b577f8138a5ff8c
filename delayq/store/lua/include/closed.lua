-- What to say of an id that is not here: a closed queue never has it again, so it may be in the next layout.
local function unknown(state)
  return redis.call('HEXISTS', state, 'closed') == 1 and 'moved' or 'not_found'
end
