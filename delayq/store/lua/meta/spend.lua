-- Spend messages a second from buckets, each of which all share who go by its rate: in any time no more than it has of them by the
-- clock of this server, and one burst.
-- KEYS: the buckets
-- ARGV: now, '1' if all that is wanted of a bucket or none; then of each bucket one text of five words: messages per second, messages
--       that it holds, how many are wanted, the time after which nobody can use any ('-' = there is none): nothing is granted then, as
--       to an ask that stood in a server that stood still; and the version of the policies that say so ('-' = none do). After a newer
--       one nothing is granted, and nothing changes
-- Returns: {now, then of each bucket how many were granted, in how many ms one more can be (all of them, if it is all or none; 0 = at
--          once), and the newer version, or ''}
-- @flags allow-oom
-- @first MGET TIME
-- @include clock bucket
local now, micro = clock(ARGV[1])
local all, answer = ARGV[2] == '1', { now }
for place, key in ipairs(KEYS) do
  local rate, burst, wanted, upto, version = string.match(ARGV[place + 2], '^(%S+) (%S+) (%d+) (%S+) (%S+)$')
  local granted, wait, newer = 0, 0, ''
  if upto == '-' or now <= tonumber(upto) then
    local bucket, newest = read_bucket(key, tonumber(rate), tonumber(burst), version == '-' and '' or version,
      now * 1000 + micro, all)
    if bucket then
      wanted = tonumber(wanted)
      granted = math.min(wanted, bucket.has)
      if all and granted < wanted then
        granted = 0
      end
      spend_from(bucket, granted)
      local short = granted < wanted and bucket.used + ((all and wanted or 1) - burst) * bucket.each or 0
      wait = math.max(0, math.ceil(short / 1000))
    else
      newer = newest
    end
  end
  answer[3 * place - 1], answer[3 * place], answer[3 * place + 1] = granted, wait, newer
end
return answer
