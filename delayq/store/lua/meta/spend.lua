-- Spend messages from the buckets of rates. Each bucket is shared by all senders of its rate. In any period, a bucket
-- grants at most its rate by this server's clock, and one burst.
-- KEYS: the buckets.
-- ARGV: now, '1' to grant all or nothing of a bucket, then for each bucket a text of five words.
--   The words are: messages per second, burst, messages wanted, latest time ('-' = none), policy version ('-' = none).
--   After the latest time nothing is granted: nobody can use the permits of a call that waited in a stalled server.
--   If the bucket has a newer version, nothing is granted and nothing changes.
-- Returns: {now, then for each bucket three values}.
--   They are: messages granted, the wait until one more is available (ms, 0 = none), and the newer version or ''.
--   With all or nothing, the wait is until all are available.
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
