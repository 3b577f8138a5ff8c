-- Whether a ticket still stands exactly as it was pulled: same generation, due and attempts. So doing a retry, bury
-- or park again changes nothing.
local function as_pulled(queue, attempts, ticket, due, tries)
  local score = redis.call('ZSCORE', queue, ticket)
  if not score then
    return 'gone'
  end
  if tonumber(score) ~= tonumber(due) then
    return 'changed'
  end
  local stored = redis.call('HGET', attempts, string.sub(ticket, 1, -9))
  if (tonumber(stored or '') or 0) ~= (tonumber(tries) or 0) then
    return 'changed'
  end
  return 'ok'
end
