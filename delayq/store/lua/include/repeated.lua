-- `moves` has the named calls that gave a message another due time, or found it due. They are kept as long as the id is
-- known. Without them, a caller that lost the reply of such a call would only learn the present state of the message. A
-- field is an id. Its value has each call, the newest last. A call is a line feed, its name, a space and the due time.
local MOST_CALLS = 16 -- of a message

-- Return the record of a message, or nil and the answer. After a change by the same call, that is 'scheduled' and its due time.
-- Without a record, it is the state of the id. `now` is the earlier of two clocks (see include/final).
local function record_or_answer(state, pool, final, moves, id, call, now, window)
  local record = redis.call('HGET', pool, id)
  local ended_how = not record and ENDS[ending(redis.call('ZSCORE', final, id), now, window)]
  local made = call ~= '' and (record or ended_how) and redis.call('HGET', moves, id)
  local _, name_end = string.find(made or '', '\n' .. call .. ' ', 1, true)
  if name_end then
    return nil, { 'scheduled', string.match(made, '^%d+', name_end + 1) }
  end
  return record, not record and { ended_how or unknown(state) }
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
