-- `final` remembers how an id ended, with the ms and 19 bits of a digest of what was forwarded. All of that is in the score,
-- a double that grows with the ms: 2^31 ms share an exponent, and the 52 bits of the fraction are 31 of the ms within
-- them, 19 of the digest, 2 of how.
local FORWARDED, CANCELLED, CANCELLED_IN_FLIGHT, DISCARDED = 0, 1, 2, 3
local ENDS = { [FORWARDED] = 'delivered', [CANCELLED] = 'cancelled', [CANCELLED_IN_FLIGHT] = 'removed_in_flight',
  [DISCARDED] = 'discarded' }

-- In place of a digest, of an id whose message was cancelled for certain: anybody may schedule it again.
local FREE = 1

local function ended_number(now, how, digest)
  local fraction = now % 2147483648 * 2097152 + (digest or 0) * 4 + how
  return math.ldexp(4503599627370496 + fraction, math.floor(now / 2147483648) - 752)
end

local function ended(now, how, digest)
  return string.format('%.17g', ended_number(now, how, digest))
end

-- The score of what was forwarded and nobody compares with a repeated call, and by how much that of the next one is higher: scores
-- that grow are the cheapest to add.
local function plain_ends(now)
  local first = ended_number(now, FORWARDED)
  return first, ended_number(now, FORWARDED, 1) - first
end

-- The earlier of two clocks, by which ids are remembered: one that jumps ahead forgets nothing. The owner notes by how much
-- that of Redis is ahead of its own.
local function earlier(state, now)
  return now - (tonumber(redis.call('HGET', state, 'ahead') or '') or 0)
end

-- How the id with this score in `final` ended, when, and the digest; nil if it is forgotten. `now` is the earlier of two
-- clocks.
local function ending(score, now, window)
  score = tonumber(score or '')
  if not score then
    return nil
  end
  local fraction, exponent = math.frexp(score)
  local bits = fraction * 9007199254740992 - 4503599627370496
  local at = (exponent + 699) * 2147483648 + math.floor(bits / 2097152)
  if at < now - window then
    return nil
  end
  return bits % 4, at, math.floor(bits % 2097152 / 4)
end
