-- Epochs are texts of equal length. Redis keeps the highest it has seen and adopts a newer one at once.
-- Behind an epoch and '#' an owner names its incarnation, which is another one each time that it goes on without having
-- heard what became of what it sent: this may still arrive, and is fenced then like an older owner.
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
