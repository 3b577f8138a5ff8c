-- `final` remembers how an id ended, with the ms and 19 bits of a digest of what was forwarded. All of that is in the score,
-- a double that grows with the ms: 2^31 ms share an exponent, and the 52 bits of the fraction are 31 of the ms within
-- them, 19 of the digest, 2 of how. Trimmed in bounded steps, oldest first.
local FORWARDED, CANCELLED, CANCELLED_IN_FLIGHT, DISCARDED = 0, 1, 2, 3
local ENDS = { [FORWARDED] = 'delivered', [CANCELLED] = 'cancelled', [CANCELLED_IN_FLIGHT] = 'removed_in_flight',
  [DISCARDED] = 'discarded' }

local function ended(now, how, digest)
  local fraction = now % 2147483648 * 2097152 + (digest or 0) * 4 + how
  return string.format('%.17g', math.ldexp(4503599627370496 + fraction, math.floor(now / 2147483648) - 752))
end

-- The member of the index by which a message is found that was asked for by the id that its caller gave, without the
-- suffix of its ordering key. No business key begins like that. It stays until the id is forgotten here.
local function asked_member(id)
  return '\1' .. string.sub(id, 1, -6) .. '\0' .. id
end

-- The earlier of two clocks, by which ids are remembered: one that jumps ahead forgets nothing. The owner notes by how much
-- that of Redis is ahead of its own.
local function earlier(state, now)
  return now - (tonumber(redis.call('HGET', state, 'ahead') or '') or 0)
end

local function forget(final, index, count)
  if count > 0 then
    local last = math.min(count, 2000) - 1
    local members = {}
    for _, id in ipairs(redis.call('ZRANGE', final, 0, last)) do
      if string.find(id, '.%.%x%x%x%x$') then
        members[#members + 1] = asked_member(id)
      end
    end
    if #members > 0 then
      redis.call('ZREM', index, unpack(members))
    end
    redis.call('ZREMRANGEBYRANK', final, 0, last)
  end
end

local function forget_over(final, index, most)
  forget(final, index, redis.call('ZCARD', final) - most)
end

-- `now` is the earlier of two clocks.
local function forget_old(final, index, now, window, most)
  local old = redis.call('ZCOUNT', final, '-inf', '(' .. ended(now - window, FORWARDED))
  forget(final, index, math.max(old, redis.call('ZCARD', final) - most))
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
