-- `moves` has the named calls that gave a message another due time, or found it due. They are kept as long as the id is
-- known. Without them, a caller that lost the reply of such a call would only learn the present state of the message. A
-- field is an id. Its value has each call, the newest last. A call is a line feed, its name, a space and the due time.
local MOST_CALLS = 16 -- of a message

-- Return the due time that the same call of this id got before, in digits. Return nil if there was no such call.
local function due_of_call(moves, id, call)
  local made = call ~= '' and redis.call('HGET', moves, id)
  local _, name_end = string.find(made or '', '\n' .. call .. ' ', 1, true)
  return name_end and string.match(made, '^%d+', name_end + 1)
end

-- Remember the due time (in digits) that a call of this id gets. A call without a name is not remembered.
local function remember_call(moves, id, call, due)
  if call == '' then
    return
  end
  local made = (redis.call('HGET', moves, id) or '') .. '\n' .. call .. ' ' .. due
  if select(2, string.gsub(made, '\n', '')) > MOST_CALLS then
    made = string.match(made, '\n.*', 2)
  end
  redis.call('HSET', moves, id, made)
end
