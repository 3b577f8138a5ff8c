-- Epochs are texts of equal length. Redis keeps the highest it has seen and adopts a newer one at once.
local function fenced(state, stored, epoch)
  if stored and epoch < stored then
    return true
  end
  if epoch ~= stored then
    redis.call('HSET', state, 'epoch', epoch)
  end
  return false
end
