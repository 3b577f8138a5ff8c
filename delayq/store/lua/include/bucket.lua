-- The bucket of a rate, which leaks (GCRA), is one string: when it is full again if nobody spends any more (µs by the clock of this
-- server), the second of the last spending, how much was spent in it, how much in the second before, and the newest version of the
-- policies by which it was read.
-- Read it at `here` (µs): `has` is how many messages it has, and `each` the µs for each. If the bucket knows newer policies, the answer
-- is nil and their version: the caller has stood still, and uses a former rate. `whole`: a job's burst is its next batch, which may be
-- smaller than the last one; else the bucket is never emptier than empty: after a clock that was set back, or with a higher rate,
-- nobody waits for what was before. MGET reads nothing where GET would fail: a former version wrote a hash. SET replaces it.
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
-- Take so many messages from a bucket that was read just now.
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
