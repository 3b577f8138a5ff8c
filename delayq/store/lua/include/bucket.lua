-- The bucket of a rate, which leaks (GCRA): `free` is when it is full again if nobody spends any more, in µs by the clock of this
-- server. It keeps the newest version of the policies by which it was asked.
-- Read it at `here` (µs): `has` is how many messages it has, and `each` the µs for each. If the bucket knows newer policies, nil and
-- their version: the caller has stood still, and goes by a former rate. `whole`: a job's burst is its next batch, which is smaller
-- than the last one perhaps; else the bucket is never emptier than empty: after a clock that was set back, or with a higher rate,
-- nobody waits for what was before.
local function read_bucket(key, rate, burst, version, here, whole)
  local known = redis.call('HMGET', key, 'free', 'second', 'spent', 'before', 'version')
  local newest = known[5] or ''
  if version ~= '' and version < newest then
    return nil, newest
  end
  local each = 1000000 / rate
  local stored = math.max((tonumber(known[1] or '') or 0) - here, 0)
  local used = whole and stored or math.min(stored, burst * each)
  return {
    key = key, here = here, each = each, known = known, version = version > newest and version or newest,
    stored = stored, used = used, has = math.floor((burst * each - used) / each + 1e-6),
  }
end
-- Take so many messages from a bucket that was read just now.
local function spend_from(bucket, count)
  local key, known, here = bucket.key, bucket.known, bucket.here
  local used = math.ceil(bucket.used + count * bucket.each)
  bucket.used = used
  if count > 0 or used < bucket.stored or bucket.version ~= (known[5] or '') then
    local second = math.floor(here / 1000000)
    local since = second - (tonumber(known[2] or '') or 0)
    local spent = since == 0 and tonumber(known[3] or '') or 0
    local before = since == 0 and known[4] or since == 1 and known[3]
    redis.call('HSET', key, 'free', digits(here + used), 'second', digits(second),
      'spent', digits(spent + count), 'before', before or '0', 'version', bucket.version)
    redis.call('PEXPIRE', key, digits(math.ceil(used / 1000) + 60000))
  end
end
