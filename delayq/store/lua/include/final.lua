-- `final` remembers how an id ended, the ms, and 19 bits of a digest of the delivered message. All of that is in the
-- score, a double that grows with the ms. A period of 2^31 ms shares an exponent. The fraction has 52 bits: 31 for the
-- ms within the period, 19 for the digest, and 2 for the ending.
local FORWARDED, CANCELLED, CANCELLED_IN_FLIGHT, DISCARDED = 0, 1, 2, 3
local ENDS = { [FORWARDED] = 'delivered', [CANCELLED] = 'cancelled', [CANCELLED_IN_FLIGHT] = 'removed_in_flight',
  [DISCARDED] = 'discarded' }

-- This value replaces the digest of an id whose message was cancelled for certain: anybody may schedule the id again.
local FREE = 1

local function ended_number(now, how, digest)
  local fraction = now % 2147483648 * 2097152 + (digest or 0) * 4 + how
  return math.ldexp(4503599627370496 + fraction, math.floor(now / 2147483648) - 752)
end

local function ended(now, how, digest)
  return string.format('%.17g', ended_number(now, how, digest))
end

-- Return the score of a delivered message that no repeated call is compared with, and the step to the next score.
-- Scores that grow are the cheapest to add.
local function plain_ends(now)
  local first = ended_number(now, FORWARDED)
  return first, ended_number(now, FORWARDED, 1) - first
end

-- Return the earlier of two clocks, by which ids are remembered: a clock that jumps ahead forgets nothing. The owner
-- records how far the clock of Redis is ahead of its own.
local function earlier(state, now)
  return now - (tonumber(redis.call('HGET', state, 'ahead') or '') or 0)
end

-- Return how the id with this score in `final` ended, when, and the digest. Return nil if it is forgotten. `now` is the
-- earlier of two clocks.
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
