-- Epochs are texts of equal length. Redis keeps the highest one that it has seen, and adopts a newer one at once. An
-- owner adds '#' and its incarnation to the epoch. It takes a new incarnation when it continues after a lost reply. An
-- earlier call may still arrive, and is then fenced like the call of an older owner.
local function fenced(state, stored, given)
  local epoch, incarnation = string.match(given, '^([^#]*)#?(.*)$')
  if stored and epoch < stored then
    return true
  end
  if epoch ~= stored then
    redis.call('HSET', state, 'epoch', epoch, 'incarnation', incarnation)
    return false
  end
  if incarnation == '' then
    return false -- what is sent this way cannot do harm late
  end
  local latest = redis.call('HGET', state, 'incarnation') or ''
  if incarnation > latest then
    redis.call('HSET', state, 'incarnation', incarnation)
  end
  return incarnation < latest
end
