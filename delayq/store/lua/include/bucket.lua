-- The bucket of a rate leaks (GCRA), and is one string of five words. The first is the time when the bucket is full if
-- no more is spent (µs by this server's clock). The next three are the second of the last spending, the amount spent in
-- it, and the amount spent in the second before. The last is the newest version of the policies that a reader used.
-- Read the bucket at `here` (µs). `has` is the number of messages in it, `each` the µs for each message. If the bucket
-- has newer policies, return nil and their version: the caller was stalled and uses a former rate. `whole`: a job's
-- burst is its next batch, which may be smaller than the last one, so the debt may exceed the burst. Otherwise the debt
-- is at most one burst. Then no caller waits for older debts after a clock was set back or a rate was raised. MGET
-- returns nothing where GET would fail, because a former version wrote a hash. SET replaces it.
local function read_bucket(key, rate, burst, version, here, whole)
  local each = 1000000 / rate
  local free, second, spent, before, newest = string.match(redis.call('MGET', key)[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%S*)$')
  newest = newest or ''
  if version ~= '' and version < newest then
    return nil, newest
  end
  local stored = free and math.max(tonumber(free) - here, 0) or 0
  local used = whole and stored or math.min(stored, burst * each)
  return {
    key = key, here = here, each = each, second = tonumber(second), spent = spent, before = before,
    newest = newest, version = version > newest and version or newest, stored = stored, used = used,
    has = math.floor((burst * each - used) / each + 1e-6),
  }
end
-- Take `count` messages from a bucket that this script has just read.
local function spend_from(bucket, count)
  local key, here = bucket.key, bucket.here
  local used = math.ceil(bucket.used + count * bucket.each)
  bucket.used = used
  if count > 0 or used < bucket.stored or bucket.version ~= bucket.newest then
    local second = math.floor(here / 1000000)
    local since = second - (bucket.second or 0)
    local spent = count + (since == 0 and tonumber(bucket.spent) or 0)
    local before = since == 0 and bucket.before or since == 1 and bucket.spent or '0'
    redis.call('SET', key, string.format('%.0f %d %d %s %s', here + used, second, spent, before, bucket.version),
      'PX', digits(math.ceil(used / 1000) + 60000))
  end
end
