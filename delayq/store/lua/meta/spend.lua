-- Spend some of the messages a second that all share who go by one rate: in any time no more than it has of them by the clock
-- of this server, and one burst.
-- KEYS: the bucket
-- ARGV: now, messages per second, messages that it holds, how many are wanted, '1' if all of them or none, the time after
--       which nobody can use any ('' = there is none): nothing is granted then, as to an ask that stood in a server that stood still;
--       the version of the policies that say so ('' = none do). After a newer one nothing is granted, and nothing changes
-- Returns: {how many were granted, in how many ms one more can be (all of them, if it is all or none; 0 = at once), now,
--          the newer version, or ''}
-- @flags allow-oom
-- @first MGET TIME
-- @include clock bucket
local rate, burst, wanted, all = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local now, micro = clock(ARGV[1])
if ARGV[6] ~= '' and now > tonumber(ARGV[6]) then
  return { 0, 0, now, '' }
end
local bucket, newer = read_bucket(KEYS[1], rate, burst, ARGV[7], now * 1000 + micro, all)
if not bucket then
  return { 0, 0, now, newer }
end
local granted = math.min(wanted, bucket.has)
if all and granted < wanted then
  granted = 0
end
spend_from(bucket, granted)
local short = granted < wanted and bucket.used + (all and wanted or 1) * bucket.each - burst * bucket.each or 0
return { granted, math.max(0, math.ceil(short / 1000)), now, '' }
