-- Process `entries`, which are tickets of the queue or of a parked set. A message whose topic is a stream here is
-- appended. An expired message is buried. A held message is listed for the set of its topic (`aside`). Any other
-- message is returned. The loop may end before the last entry. The include `leave` completes its removals.
-- The rules of the loop are no functions, because each run of the script would create them. Two functions made the pull
-- of a lone message 2 to 5 % dearer.
-- Needs: entries, their ids, due_count (their number), due_of (some of their due times). The keys queue, pool,
--   attempts_key, moves, dead, reasons, ended_keys, final, index. The times now, now_text, expiry_now, in_doubt.
--   Also streams, trims, bounds, spends (`named_topics`), and gated, is_held, unreachable (`held`).
--   Also the wishes of the owner: unlisted, in_memory (by ticket, or nil), fresh, room, most_bytes, traced.
-- Sets: looked, kept, stays, tickets, returned, tried, unknown, refused, `aside`, traces, orphans, first_orphan. It also
--   sets next_due if it ends at a message whose expiry is in doubt. The rest is for `leave`.
local pcall, refused = redis.pcall, {}
-- @include appending
-- Append a message that has an ordering key or properties, or whose stream is trimmed. Return the entry or its error, and its traceparent
-- if wanted.
local function append(stream, trim, id, topic, tags, ordering, keys, body, due, attempt, record, keys_end,
  properties_end)
  local entry = { 'XADD', stream }
  if trim then
    entry[3], entry[4], entry[5] = 'MAXLEN', '~', trim
  end
  for _, value in ipairs({ '*', 'id', id, 'topic', topic, 'tags', tags, 'keys', keys, 'body', body, 'due', due,
    'attempt', attempt }) do
    entry[#entry + 1] = value
  end
  if ordering ~= '' then
    local n = #entry
    entry[n + 1], entry[n + 2] = 'orderingKey', ordering
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

-- Return the error if a key has another type, or false. A script must not meet this error after its first XADD.
local function wrong_type(hash, sorted_sets)
  local tried = pcall('HLEN', hash)
  for _, sorted_set in ipairs(sorted_sets) do
    tried = type(tried) == 'table' and tried or pcall('ZCARD', sorted_set)
  end
  return type(tried) == 'table' and tostring(tried.err)
end

-- These errors concern the entire server and pass. Any other error of XADD concerns only that stream.
local PASSING = ' OOM READONLY MISCONF NOREPLICAS MASTERDOWN CLUSTERDOWN '

-- Due messages are read in chunks, so that large bodies do not pile up in memory.
local gone_ids, stays, members, ends, traces, aside = {}, {}, {}, {}, {}, {}
local keyed, n_keyed, n_ends, plain_end, next_plain = {}, 0, 0, nil, nil -- ids and business keys of what has ended
local tickets, tried, returned, unknown = {}, {}, {}, {}
local appended, buried, orphans, kept, bytes, looked = 0, 0, 0, 0, 0, 0
local first_orphan
local any_attempts = due_count > 0 and redis.call('EXISTS', attempts_key) == 1
local any_calls = due_count > 0 and redis.call('EXISTS', moves) == 1
local sure = false -- the rights to remove something are there
local dead_wrong, ends_wrong -- why a message can neither be buried nor remembered once it has ended
-- Almost every due time is between these texts. Comparing texts costs less than converting each due time to a number.
local earliest, latest = digits(now - 1e9), now > 1e12 and now_text or ''
local records, attempts, calls, chunk = {}, {}, {}, 0
for i = 1, due_count do
  local at = i - chunk
  if at > #records then
    chunk, at = i - 1, 1
    local last = math.min(i + 99, due_count)
    records = redis.call('HMGET', pool, unpack(ids, i, last))
    attempts = any_attempts and redis.call('HMGET', attempts_key, unpack(ids, i, last)) or {}
    calls = any_calls and redis.call('HMGET', moves, unpack(ids, i, last)) or {}
  end
  local ticket, id, record, tries = entries[i], ids[i], records[at], attempts[at]
  local named = calls[at] -- its call has a name, which has to be remembered
  local ends_loop, wrong = false, nil
  repeat -- runs once: `break` ends the message, and `ends_loop` or an error (`wrong`) the loop before this message
    if in_memory and in_memory[ticket] then
      kept, stays[i] = kept + 1, true
      break
    end
    if not record or sub(record, 1, GENERATION) ~= sub(ticket, -7) then
      if not sure then
        -- @guard HDEL HINCRBY HSET ZADD ZCARD ZCOUNT ZREM ZREMRANGEBYRANK ZSCORE
        sure = true
      end
      orphans, first_orphan = orphans + 1, first_orphan or ticket -- a ticket without its record
      break
    end
    local topic_end, tags_end, ordering_end, options_end, keys_end, properties_end, body_end, mark, flags = fields(record)
    local topic = topic_end and sub(record, FIELDS, topic_end)
    local stream = topic and streams[topic]
    local forced = tries and find(tries, '^%+0%d') -- a caller has it delivered in spite of pauses and limits
    local bound = stream and bounds[topic]
    if stream and bound == nil and spends then
      bound = spends(topic)
    end
    local held = topic and gated and not forced and is_held(topic, bound)
    -- A corrupt message is returned to its owner. An error here, after the first XADD, would append the same messages
    -- again at every pull.
    if (stream == nil or held) and topic and not is_topic(topic) or stream and not is_sound(record, topic_end, tags_end,
      ordering_end, options_end, keys_end, properties_end, body_end, mark, flags) then
      topic, stream, held = nil, nil, false
    end
    if topic and stream == nil and not held and unlisted == 'unknown' then
      unknown[1], ends_loop = topic, true
      break
    end
    bytes = bytes + #record
    ends_loop = bytes > most_bytes and i - 1 - kept + #tickets > 0
    wrong = held and unreachable
    if ends_loop or wrong then
      break
    end
    if fresh and topic_end and ordering_end > tags_end then
      kept, stays[i] = kept + 1, true -- one with an ordering key stays for the backlog
      break
    end
    if held then
      local n = #aside
      aside[n + 1], aside[n + 2] = ticket, topic
      break
    end
    local due, expired
    if stream then
      if not sure then
        -- @guard HDEL HINCRBY HLEN HSET ZADD ZCARD ZCOUNT ZREM ZREMRANGEBYRANK ZSCORE
        sure = true
      end
      due = sub(record, ASKED, MARK - 1)
    end
    if due and (due < earliest or due > latest or flags % 8 > 3) then -- rare: looked at as a number
      local asked = tonumber(due)
      local after = flags % 8 > 3 and tonumber(match(sub(record, ordering_end + 1, options_end), ',([0-9]+)$'))
      expired = after and expiry_now >= asked + after
      if expired and in_doubt and now < asked + after then
        next_due, ends_loop = due_of[ticket] or redis.call('ZSCORE', queue, ticket), true
        break
      end
      due = digits(asked) -- without the zeros before it
    end
    if expired then
      if dead_wrong == nil then
        dead_wrong = wrong_type(reasons, { dead })
      end
      wrong = dead_wrong
    elseif due and (mark > 1 or keys_end > options_end or named) then
      if ends_wrong == nil then
        ends_wrong = wrong_type(ended_keys, { final, index })
      end
      wrong = ends_wrong
    end
    if wrong then
      break
    end
    if expired then
      buried = buried + 1
      redis.call('ZADD', dead, digits(now), id)
      redis.call('HSET', reasons, id, digits(now) .. ' ' .. (tries or '0') .. ' expired')
      if tries then
        redis.call('HDEL', attempts_key, id)
      end
      break
    end
    local attempt, keys, told, entry, trace
    if due then
      attempt = tries and digits((tonumber(tries) or 0) + 1) or '1'
      keys = keys_end > options_end and sub(record, options_end + 1, keys_end) or ''
      told = flags % 16 > 7 and unreserved(keys) or keys
      local tags, body = sub(record, topic_end + 1, tags_end), sub(record, properties_end + 1, body_end)
      local trim = trims[topic] and match(trims[topic], '^%d+')
      if properties_end == keys_end and ordering_end == tags_end and not trim then
        entry = pcall('XADD', stream, '*', 'id', id, 'topic', topic, 'tags', tags, 'keys', told, 'body', body,
          'due', due, 'attempt', attempt)
      else
        entry, trace = append(stream, trim, id, topic, tags, sub(record, tags_end + 1, ordering_end), told,
          body, due, attempt, record, keys_end, properties_end)
      end
      wrong = entry.err and tostring(entry.err)
    end
    if wrong then
      if find(PASSING, ' ' .. match(wrong, '^%u*') .. ' ', 1, true) then
        break
      end
      local n = #refused
      refused[n + 1], refused[n + 2] = topic, wrong
      streams[topic] = false
      due, wrong = nil, nil -- returned, so that its owner can bury it or set it aside
    end
    if not due then
      local n = #tickets + 1
      if n > room then
        ends_loop = true
        break
      end
      tickets[n], returned[n], tried[n] = ticket, record, tries or ''
      kept, stays[i] = kept + 1, true
      break
    end
    appended = appended + 1
    gone_ids[appended] = id
    if bound and bound.most >= 1 then -- one that is forced needs none
      bound.most = bound.most - 1
    end
    if trace then
      local n = #traces
      traces[n + 1], traces[n + 2], traces[n + 3], traces[n + 4] = id, topic, attempt, trace
    end
    if #told < #keys then
      split_keys(members, keys, id)
    end
    if told ~= '' or named then
      keyed[n_keyed + 1], keyed[n_keyed + 2], n_keyed = id, end_of(told, topic, ''), n_keyed + 2
    end
    if mark > 1 then
      ends[n_ends + 1], ends[n_ends + 2] = ended(now, FORWARDED, digest_of(first_call(record))), id
      n_ends = n_ends + 2
    elseif told ~= '' or named then
      if not plain_end then
        plain_end, next_plain = plain_ends(now)
      end
      ends[n_ends + 1], ends[n_ends + 2], n_ends, plain_end = plain_end, id, n_ends + 2, plain_end + next_plain
    end
  until true
  if wrong and looked == 0 then
    return redis.error_reply(wrong)
  end
  if wrong or ends_loop then -- what was done so far is finished first; the next pull meets the same error again
    break
  end
  looked = i
end
