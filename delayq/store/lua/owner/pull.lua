-- Take due messages of one queue, from the offset on. Those whose topic is a stream in this Redis are appended to it
-- and removed here, exactly once; the others are returned and stay in the queue until they are settled.
-- KEYS: state queue pool attempts keys final dead reasons ended, then the streams
-- ARGV: epoch, now, the node's now (ms, or ''), offset due, offset ticket, the last ticket in flight at that due,
--       most to return, most to look at, most bytes, '1' if fresh (messages with an ordering key stay),
--       what an unlisted topic is ('general' or 'unknown'), window of final, most in final, '1' if traces are wanted,
--       '1' if the names of the parked sets are, the version of the policies that the owner goes by, how many topics are
--       known; topic, stream (its place behind the 9 keys, or '' for general), MAXLEN ('' = none) of each known topic;
--       of each that is bounded: topic, name of what it shares with others ('' = nothing), most to append of all that share
--       it ('' = all; or 'N@TIME N@TIME ...', each good until then), due and ticket of the first message of that topic that is held: behind it nothing with an ordering key is appended ('' '' = none is held)
-- Returns: {'fenced', epoch} or {'policies', the version that the queue has}: it is another one, and nothing was done
--          or {'ok', now, µs, next due or '', more due ('1'/'0'), rank of the first looked at, due and ticket of the last,
--          how many were appended, tickets, dues, attempts, records, unknown topics,
--          topic and error of each stream that takes nothing, whose messages are returned,
--          id, topic, attempt and traceparent of each that was appended and has one, and the names of the parked
--          sets, if that is wanted; the counters scheduled, forwarded and cancelled, as they were before this pull;
--          name and how many more might have been appended of each share; by how much Redis's clock is ahead of now (ms)}
-- @flags allow-oom
-- @empties
-- @first EXISTS HMGET TIME ZRANGE
-- @include clock record properties content sound index final forget fence
local state, queue, pool, attempts_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local index, final, dead, reasons, ended_keys = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local known = redis.call('HMGET', state, 'epoch', 'watermark', 'sleep_until', 'scheduled', 'forwarded', 'cancelled',
  'ahead', 'policies')
if fenced(state, known[1], ARGV[1]) then
  return { 'fenced', known[1] }
end
if (known[8] or '') ~= ARGV[16] then
  return { 'policies', known[8] or '' }
end
local now, micro = clock(ARGV[2])
local here, ahead, watermark = now, 0, tonumber(known[2] or '') or -1
if ARGV[3] ~= '' and tonumber(ARGV[3]) < now then
  ahead = now - tonumber(ARGV[3])
  now, micro = tonumber(ARGV[3]), 0 -- the earlier of the two clocks: one that jumps ahead fires nothing early
end
-- Expiry goes by the clock of Redis as it is now, less what it is known to be ahead: the node's time is from before this pull
-- perhaps stood in a server that stood still. If the difference is new, the clock may have jumped instead: the next pull knows.
local known_ahead = tonumber(known[7] or '') or 0
local expiry_now, in_doubt = math.max(now, here - known_ahead), ahead - known_ahead >= 1000
local offset, room, look, most_bytes = ARGV[4], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local fresh, unlisted = ARGV[10] == '1', ARGV[11]
local window, most_final, traced = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14] == '1'

-- The rank to start from: behind a ticket that was looked at and still stands there, else the first at the offset.
local function start_rank()
  for i = 5, 6 do
    local ticket = ARGV[i]
    if ticket ~= '' then
      local score = redis.call('ZSCORE', queue, ticket)
      if score and tonumber(score) == tonumber(offset) then
        return redis.call('ZRANK', queue, ticket) + 1
      end
    end
  end
  return redis.call('ZCOUNT', queue, '-inf', '(' .. offset)
end

-- What is due from there on, no more than will be looked at; and, if that is all, when the next one is due. Mostly few are due,
-- and one call tells it all.
local FEW, due_by, now_text = 4, now, digits(now)
local start = start_rank()
local entries, due_count, more, next_due, due_of = {}, 0, false, '', {}
local page = redis.call('ZRANGE', queue, start, start + FEW - 1, 'WITHSCORES')
if #page < 2 * FEW or tonumber(page[2 * FEW]) > due_by then
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > due_by then
      next_due = page[i + 1]
      break
    end
    more = due_count == look
    if more then
      break
    end
    due_count = due_count + 1
    entries[due_count], due_of[page[i]] = page[i], page[i + 1]
  end
else
  due_count = redis.call('ZCOUNT', queue, '-inf', digits(due_by)) - start
  more = due_count > look
  due_count = math.min(due_count, look)
  entries = redis.call('ZRANGE', queue, start, start + due_count - 1)
  next_due = not more and redis.call('ZRANGE', queue, start + due_count, start + due_count, 'WITHSCORES')[2] or ''
end
local ids = {}
for i = 1, due_count do
  ids[i] = sub(entries[i], 1, -9)
end

local ALL = math.huge
local streams, trims, bounds, shares = {}, {}, nil, nil
if due_count > 0 then
  local last = 17 + 3 * tonumber(ARGV[17])
  for i = 18, last, 3 do
    local place = tonumber(ARGV[i + 1])
    streams[ARGV[i]] = place and KEYS[9 + place] or false
    trims[ARGV[i]] = ARGV[i + 2] ~= '' and ARGV[i + 2]
  end
  if last < #ARGV then
    bounds, shares = {}, {}
    -- How many may be appended yet: this pull may have stood in a server that stood still. Many topics are told the same.
    local counts = { [''] = ALL }
    local function good(most)
      local count = counts[most] or tonumber(most)
      if not count then
        count = 0
        for some, by in string.gmatch(most, '(%d+)@(%d+)') do
          count = count + (tonumber(by) > here and tonumber(some) or 0)
        end
        counts[most] = count
      end
      return count
    end
    for i = last + 1, #ARGV, 5 do
      local share = shares[ARGV[i + 1]] or { most = good(ARGV[i + 2]) }
      if ARGV[i + 1] ~= '' then
        shares[ARGV[i + 1]] = share
      end
      bounds[ARGV[i]] = { share, tonumber(ARGV[i + 3]) or ALL, ARGV[i + 4] }
    end
  end
end
-- Whether a message may not be appended though its topic is a stream here: its topic had its share, or the message has an ordering
-- key and stands behind one of its topic that is held. A message that somebody has delivered by force is always appended.
local stays_behind
if bounds then
  -- Whether one ticket comes behind that of another message, by bytes: `<` would go by the language of the server.
  local function behind(one, other)
    for i = 1, math.min(#one, #other) - GENERATION do
      local a, b = byte(one, i), byte(other, i)
      if a ~= b then
        return a > b
      end
    end
    return false
  end
  stays_behind = function(bound, ticket, keyed, tried)
    if tried and find(tried, '^%+0%d') then
      return false
    end
    if bound[1].most < 1 then
      return true
    end
    if not keyed or bound[2] == ALL then
      return false
    end
    local score = tonumber(due_of[ticket] or redis.call('ZSCORE', queue, ticket))
    return score > bound[2] or score == bound[2] and behind(ticket, bound[3])
  end
end
local pcall, refused = redis.pcall, {}
-- Append a message that has properties, or whose stream is trimmed: the entry, or its error; its traceparent if wanted.
local function append(stream, trim, id, topic, tags, keys, body, due, attempt, record, keys_end, properties_end)
  local entry = { 'XADD', stream }
  if trim then
    entry[3], entry[4], entry[5] = 'MAXLEN', '~', trim
  end
  for _, value in ipairs({ '*', 'id', id, 'topic', topic, 'tags', tags, 'keys', keys, 'body', body, 'due', due,
    'attempt', attempt }) do
    entry[#entry + 1] = value
  end
  local at, trace = keys_end + 1, nil
  while at <= properties_end do
    local name, value_at = text_at(record, at)
    local value, behind = text_at(record, value_at)
    local n = #entry
    entry[n + 1], entry[n + 2] = 'p:' .. name, value
    if traced and name == 'traceparent' then
      trace = value
    end
    at = behind
  end
  return pcall(unpack(entry)), trace
end

-- What is wrong with the server as a whole, and passes; any other error of XADD is that stream's own.
local PASSING = ' OOM READONLY MISCONF NOREPLICAS MASTERDOWN CLUSTERDOWN '

local FAR, PAGE = 60000, 2000 -- what is far ahead (ms), and how many are looked at then
if due_count > FEW then
  -- @guard ZMSCORE
end
if watermark - now > FAR then
  -- @guard HGET HSETNX ZRANK
end
if ARGV[15] == '1' then
  -- @guard HKEYS
end

-- Look at what is due, in chunks so that large bodies do not pile up in memory.
local gone_ids, stays, members, ends, traces = {}, {}, {}, {}, {}
local keyed, n_keyed, n_ends, plain_end, next_plain = {}, 0, 0, nil, nil -- ids and business keys of what has ended
local tickets, tried, returned, unknown = {}, {}, {}, {}
local appended, buried, orphans, kept, bytes, looked = 0, 0, 0, 0, 0, 0
local any_attempts = due_count > 0 and redis.call('EXISTS', attempts_key) == 1
local full, sure = false, false -- sure: the rights to remove something are there
-- Almost every due lies between these texts, which costs less to ask than what number it is.
local earliest, latest = digits(now - 1e9), now > 1e12 and now_text or ''
local records, attempts, chunk = {}, {}, 0
for i = 1, due_count do
  local at = i - chunk
  if at > #records then
    chunk = i - 1
    at = 1
    local last = math.min(i + 99, due_count)
    records = redis.call('HMGET', pool, unpack(ids, i, last))
    attempts = any_attempts and redis.call('HMGET', attempts_key, unpack(ids, i, last)) or {}
  end
  local id, record = ids[i], records[at]
  if not record or sub(record, 1, GENERATION) ~= sub(entries[i], -7) then
    if not sure then
      -- @guard HDEL HINCRBY HSET ZADD ZCARD ZCOUNT ZREM ZREMRANGEBYRANK ZSCORE
      sure = true
    end
    orphans = orphans + 1 -- a ticket without its record
  else
    local topic_end, tags_end, ordering_end, options_end, keys_end, properties_end, body_end, mark, flags = fields(record)
    local topic = topic_end and sub(record, FIELDS, topic_end)
    local stream = topic and streams[topic]
    -- Returned as corrupt if it is: an error here, after the first XADD, would append that again at every pull.
    if stream == nil and topic and not is_topic(topic) or stream and not is_sound(record, topic_end, tags_end, ordering_end,
      options_end, keys_end, properties_end, body_end, mark, flags) then
      topic, stream = nil, nil
    end
    if topic and stream == nil and unlisted == 'unknown' then
      unknown[1] = topic
      break
    end
    bytes = bytes + #record
    if bytes > most_bytes and i - 1 - kept + #tickets > 0 then
      full = true
      break
    end
    local bound = bounds and bounds[topic]
    if stream and bound and stays_behind(bound, entries[i], ordering_end > tags_end, attempts[at]) then
      stream = false
    end
    local due
    if fresh and topic_end and ordering_end > tags_end then
      full = false -- one with an ordering key stays for the backlog
      kept = kept + 1
      stays[i] = true
    else
      local expired = false
      if stream then
        if not sure then
          -- @guard HDEL HINCRBY HSET ZADD ZCARD ZCOUNT ZREM ZREMRANGEBYRANK ZSCORE
          sure = true
        end
        due = sub(record, ASKED, MARK - 1)
        if due < earliest or due > latest or flags % 8 > 3 then -- rare: looked at as a number
          local asked = tonumber(due)
          local after = flags % 8 > 3 and tonumber(match(sub(record, ordering_end + 1, options_end), ',([0-9]+)$'))
          expired = after and expiry_now >= asked + after
          if expired and in_doubt and now < asked + after then
            full, next_due = true, due_of[entries[i]] or redis.call('ZSCORE', queue, entries[i])
            break
          end
          due = digits(asked) -- without the zeros before it
        end
      end
      if expired then
        local tries = attempts[at]
        buried = buried + 1
        redis.call('ZADD', dead, digits(now), id)
        redis.call('HSET', reasons, id, digits(now) .. ' ' .. (tries or '0') .. ' expired')
        if tries then
          redis.call('HDEL', attempts_key, id)
        end
      elseif due then
        local tries = attempts[at]
        local attempt = tries and digits((tonumber(tries) or 0) + 1) or '1'
        local tags, body = sub(record, topic_end + 1, tags_end), sub(record, properties_end + 1, body_end)
        local keys = keys_end > options_end and sub(record, options_end + 1, keys_end) or ''
        local told = keys
        if flags % 16 > 7 then
          told = unreserved(keys)
        end
        local trim, entry, trace = trims[topic], nil, nil
        if properties_end == keys_end and not trim then
          entry = pcall('XADD', stream, '*', 'id', id, 'topic', topic, 'tags', tags, 'keys', told, 'body', body,
            'due', due, 'attempt', attempt)
        else
          entry, trace = append(stream, trim, id, topic, tags, told, body, due, attempt, record, keys_end,
            properties_end)
        end
        if not entry.err then
          appended = appended + 1
          gone_ids[appended] = id
          if bound and bound[1].most >= 1 then -- one that is forced needs none
            bound[1].most = bound[1].most - 1
          end
          if trace then
            local n = #traces
            traces[n + 1], traces[n + 2], traces[n + 3], traces[n + 4] = id, topic, attempt, trace
          end
          if #told < #keys then
            split_keys(members, keys, id)
          end
          if told ~= '' then
            keyed[n_keyed + 1], keyed[n_keyed + 2] = id, told
            n_keyed = n_keyed + 2
          end
          if mark > 1 then
            ends[n_ends + 1], ends[n_ends + 2] = ended(now, FORWARDED, digest_of(first_call(record))), id
            n_ends = n_ends + 2
          elseif told ~= '' then
            if not plain_end then
              plain_end, next_plain = plain_ends(now)
            end
            ends[n_ends + 1], ends[n_ends + 2] = plain_end, id
            plain_end = plain_end + next_plain
            n_ends = n_ends + 2
          end
        elseif not find(PASSING, ' ' .. match(tostring(entry.err), '^%u*') .. ' ', 1, true) then
          local n = #refused
          refused[n + 1], refused[n + 2] = topic, tostring(entry.err)
          streams[topic] = false
          due = nil -- returned, so that its owner can bury it or set it aside
        elseif looked == 0 then
          return redis.error_reply(tostring(entry.err))
        else
          full = true -- what was done so far is finished first; the next pull meets this error again
          break
        end
      end
      if not due then
        if #tickets >= room then
          full = true
          break
        end
        local n = #tickets + 1
        tickets[n], returned[n] = entries[i], record
        tried[n] = attempts[at] or ''
        kept = kept + 1
        stays[i] = true
      end
    end
  end
  looked = i
end
if unknown[1] then
  -- Name the unknown topics that stand near behind it too, so that one more look knows them all.
  local seen = { [unknown[1]] = true }
  for at = looked - chunk + 1, #records do
    local record = records[at]
    local topic_end = record and fields(record)
    local topic = topic_end and sub(record, FIELDS, topic_end)
    if topic and streams[topic] == nil and not seen[topic] and is_topic(topic) then
      seen[topic] = true
      unknown[#unknown + 1] = topic
    end
  end
end
more = more or full or looked < due_count
local last_ticket = looked > 0 and entries[looked] or ''
local last_score = looked > 0 and (due_of[last_ticket] or redis.call('ZSCORE', queue, last_ticket)) or ''
local scores = {}
if #tickets > FEW then
  scores = redis.call('ZMSCORE', queue, unpack(tickets))
else
  for i, ticket in ipairs(tickets) do
    scores[i] = due_of[ticket] or redis.call('ZSCORE', queue, ticket)
  end
end

if kept == 0 and looked > 0 then
  redis.call('ZREMRANGEBYRANK', queue, start, start + looked - 1)
elseif kept < looked then
  local gone = {}
  for i = 1, looked do
    if not stays[i] then
      gone[#gone + 1] = entries[i]
    end
  end
  redis.call('ZREM', queue, unpack(gone))
end
if appended > 0 then
  redis.call('HDEL', pool, unpack(gone_ids))
  if any_attempts then
    redis.call('HDEL', attempts_key, unpack(gone_ids))
  end
  for first = 1, #members, 2000 do
    redis.call('ZREM', index, unpack(members, first, math.min(first + 1999, #members)))
  end
  if n_keyed > 0 then
    redis.call('HSET', ended_keys, unpack(keyed))
  end
  if n_ends > 0 then
    redis.call('ZADD', final, unpack(ends))
  end
end
if buried > 0 then
  redis.call('HINCRBY', state, 'buried', buried)
end
if orphans > 0 then
  redis.call('HINCRBY', state, 'orphans', orphans)
end
if n_ends > 0 or not more and not fresh then
  local count = too_many(final, now, window, n_ends > 0 and most_final or math.huge)
  if count > 0 then
    -- @guard HDEL HSET ZREM
    forget(final, index, ended_keys, count)
  end
end
local changed = {}
local function set(field, value)
  local n = #changed
  changed[n + 1], changed[n + 2] = field, value
end
if appended > 0 then
  set('forwarded', (tonumber(known[5] or '') or 0) + appended)
end
if math.abs(ahead - known_ahead) >= 1000 then
  set('ahead', ahead < 1000 and '0' or digits(ahead))
end
if looked > 0 and tonumber(last_score) > watermark then
  set('watermark', last_score)
elseif watermark - now > FAR and not fresh then
  -- @include lower_watermark
end
if not more and not fresh then
  local sleep_until = next_due == '' and 'none' or next_due
  if sleep_until ~= known[3] then
    set('sleep_until', sleep_until)
  end
end
if #changed > 0 then
  redis.call('HSET', state, unpack(changed))
end
local parked = {}
if ARGV[15] == '1' then
  for _, field in ipairs(redis.call('HKEYS', state)) do
    if sub(field, 1, 7) == 'parked:' then
      parked[#parked + 1] = sub(field, 8)
    end
  end
end
local left = {}
for name, share in pairs(shares or {}) do
  left[#left + 1], left[#left + 2] = name, digits(share.most)
end
return {
  'ok', now_text, micro, next_due, more and '1' or '0', start,
  last_score, last_ticket,
  appended, tickets, scores, tried, returned, unknown, refused, traces, parked,
  { known[4] or '0', known[5] or '0', known[6] or '0' }, left, ahead,
}
