-- Spend some of the messages a second that all share who go by one rate: in any time no more than it has of them by the clock
-- of this server, and one burst. It is a bucket that leaks (GCRA): `free` is when it is full again if nobody spends any more.
-- KEYS: the bucket
-- ARGV: now, messages per second, messages that it holds, how many are wanted, '1' if all of them or none, the time after
--       which nobody can use any ('' = there is none): nothing is granted then, as to an ask that stood in a server that stood still;
--       the version of the policies that say so ('' = none do). After a newer one nothing is granted, and nothing changes: the
--       caller has stood still, and goes by a former rate
-- Returns: {how many were granted, in how many ms one more can be (all of them, if it is all or none; 0 = at once), now,
--          the newer version, or ''}
-- @flags allow-oom
-- @include clock
local bucket, burst, wanted, all = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local now, micro = clock(ARGV[1])
if ARGV[6] ~= '' and now > tonumber(ARGV[6]) then
  return { 0, 0, now, '' }
end
local here, each = now * 1000 + micro, 1000000 / tonumber(ARGV[2])
local known = redis.call('HMGET', bucket, 'free', 'second', 'spent', 'before', 'version')
local version, newest = ARGV[7], known[5] or ''
if version ~= '' and version < newest then
  return { 0, 0, now, newest }
end
local stored = math.max((tonumber(known[1] or '') or 0) - here, 0)
-- It is never emptier than empty: after a clock that was set back, or with a higher rate, nobody waits for what was before.
-- (A job's burst is its next batch, which is smaller than the last one perhaps.)
local used = all and stored or math.min(stored, burst * each)
local granted = math.min(wanted, math.floor((burst * each - used) / each + 1e-6))
if all and granted < wanted then
  granted = 0
end
used = math.ceil(used + granted * each)
if granted > 0 or used < stored or version > newest then
  local second = math.floor(now / 1000)
  local since = second - (tonumber(known[2] or '') or 0)
  local spent = since == 0 and tonumber(known[3] or '') or 0
  local before = since == 0 and known[4] or since == 1 and known[3]
  redis.call('HSET', bucket, 'free', digits(here + used), 'second', digits(second),
    'spent', digits(spent + granted), 'before', before or '0',
    'version', version > newest and version or newest)
  redis.call('PEXPIRE', bucket, digits(math.ceil(used / 1000) + 60000))
end
local short = granted < wanted and used + (all and wanted or 1) * each - burst * each or 0
return { granted, math.max(0, math.ceil(short / 1000)), now, '' }
