-- A page of dead letters, oldest first.
-- KEYS: pool dead reasons
-- ARGV: most to return, time and id of the last one seen ('' '' = from the start)
-- Returns: of each: {id, when it was buried, record, reason}
-- @flags no-writes
local pool, dead, reasons = KEYS[1], KEYS[2], KEYS[3]
local start = 0
if ARGV[3] ~= '' then
  local score = redis.call('ZSCORE', dead, ARGV[3])
  if score and tonumber(score) == tonumber(ARGV[2]) then
    start = redis.call('ZRANK', dead, ARGV[3]) + 1
  else
    start = redis.call('ZCOUNT', dead, '-inf', '(' .. ARGV[2])
  end
end
local entries = redis.call('ZRANGE', dead, start, start + tonumber(ARGV[1]) - 1, 'WITHSCORES')
local answer = {}
for i = 1, #entries, 2 do
  local id = entries[i]
  answer[#answer + 1] = { id, entries[i + 1], redis.call('HGET', pool, id) or '', redis.call('HGET', reasons, id) or '' }
end
return answer
