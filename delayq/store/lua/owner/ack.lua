-- Forget forwarded messages, if each stands as it was pulled: the generation (in the ticket) and the due. A Redis that went
-- back in time gives a generation again, so the ticket alone may be that of another message with the same id. An older
-- epoch may ack, too: a late but true ack is better than a duplicate.
-- KEYS: state queue pool attempts keys final ended
-- ARGV: epoch, now, window of final, most in final, how many; then as many tickets, then dues as pulled,
--       then, if its id is remembered, the digest of what it was (see include/content), else ''; then how many have business keys,
--       and of each of these its place (from 1) and the keys, a space between two; then the members of the index to remove
-- Returns: {'ok' or 'fenced', how many were removed}
-- @flags allow-oom
-- @empties
-- @first HGET TIME ZCOUNT ZMSCORE
-- @include clock record index final forget fence
local state, queue, pool, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, ended_keys = KEYS[5], KEYS[6], KEYS[7]
local count = tonumber(ARGV[5])
local old = fenced(state, redis.call('HGET', state, 'epoch'), ARGV[1])
local stored = redis.call('ZMSCORE', queue, unpack(ARGV, 6, 5 + count))
local tickets, ids, removed_id = {}, {}, {}
local ends, by_both = {}, nil
for i = 1, count do
  local due = stored[i]
  if due and tonumber(due) == tonumber(ARGV[5 + count + i]) then
    local n = #tickets + 1
    local ticket = ARGV[5 + i]
    tickets[n], ids[n] = ticket, string.sub(ticket, 1, -9)
    removed_id[ids[n]] = true
    local digest = tonumber(ARGV[5 + 2 * count + i])
    if digest then
      by_both = by_both or earlier(state, clock(ARGV[2]))
      ends[#ends + 1] = ended(by_both, FORWARDED, digest)
      ends[#ends + 1] = ids[n]
    end
  end
end
if #tickets > 0 then
  redis.call('ZREM', queue, unpack(tickets))
  redis.call('HDEL', pool, unpack(ids))
  if redis.call('EXISTS', attempts) == 1 then
    redis.call('HDEL', attempts, unpack(ids))
  end
  local members = {}
  local behind = 7 + 3 * count + 2 * ARGV[6 + 3 * count]
  local keyed = {}
  for i = 7 + 3 * count, behind - 1, 2 do
    local id = string.sub(ARGV[5 + ARGV[i]], 1, -9)
    if #tickets == count or removed_id[id] then
      keyed[#keyed + 1], keyed[#keyed + 2] = id, ARGV[i + 1]
    end
  end
  for i = behind, #ARGV do
    local member = ARGV[i]
    if #tickets == count or removed_id[string.match(member, '[^%z]+$')] then
      members[#members + 1] = member
    end
  end
  for first = 1, #members, 2000 do
    redis.call('ZREM', index, unpack(members, first, math.min(first + 1999, #members)))
  end
  if #keyed > 0 then
    redis.call('HSET', ended_keys, unpack(keyed))
  end
  if #ends > 0 then
    redis.call('ZADD', final, unpack(ends))
    forget_over(final, index, ended_keys, tonumber(ARGV[4]))
  end
  redis.call('HINCRBY', state, 'forwarded', #tickets)
end
return { old and 'fenced' or 'ok', #tickets }
