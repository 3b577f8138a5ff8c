-- Epochs are texts of equal length. Redis keeps the highest it has seen and adopts a newer one at once; what an older
-- owner is about to append is stopped by the guard.
local function fenced(state, guard, stored, epoch)
  if stored and epoch < stored then
    return true
  end
  if epoch ~= stored then
    redis.call('HSET', state, 'epoch', epoch)
    redis.call('HINCRBY', guard, 'changes', 1)
  end
  return false
end
