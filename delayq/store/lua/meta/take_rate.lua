-- Spend some of the messages per second that all tasks of a job share.
-- KEYS: when the job may send again (a hash, with one field)
-- ARGV: now, messages per second, how many
-- Returns: how many ms to wait before these may be sent
-- @flags allow-oom
-- @include clock
local job = KEYS[1]
local now, micro = clock(ARGV[1])
local here = now * 1000 + micro
local free = math.max(tonumber(redis.call('HGET', job, 'free') or '') or 0, here)
local next_free = free + math.ceil(tonumber(ARGV[3]) * 1000000 / tonumber(ARGV[2]))
redis.call('HSET', job, 'free', digits(next_free))
redis.call('PEXPIRE', job, digits(math.ceil((next_free - here) / 1000) + 60000))
return math.ceil((free - here) / 1000)
