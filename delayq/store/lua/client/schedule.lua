-- Schedule messages of one queue. Each record goes into the pool, its ticket into the queue, and its keys into the
-- index.
-- KEYS: state queue pool keys final dead ended moves.
-- ARGV: now, wake channel, window of final (ms), bound (ms), version, kinds, all ids, all bodies, deadline.
--   An id is remembered after delivery if its delay is below the bound.
--   The version is that of the policies that the messages follow ('' = none).
--   The kinds are one letter for each message: 'a' at, 'p' at but refused if the time has passed, 'r' after.
--   The letter is upper case if the caller gave the id. Then 'B', 'Q' or 'S' also schedules an id again whose message
--   was cancelled for certain. 'H' is 'R' for a message that was handed back: its due time is remembered as long as the id.
--   A body is the due time or delay (13 digits), '0', and the content.
--   With a version it is the due time, '1', the content, and the asked due time, which a policy has spread.
--   See include/deadline.
-- Returns: {now, index, status, due time, ...}, only for messages that this call did not schedule. The index begins at
--   0.
--   'live', 'dead': the same call scheduled the message before. 'delivered': the same, and the message was delivered.
--   'conflict': another call scheduled it; without a due time if that message was delivered.
--   'cancelled', 'removed_in_flight', 'discarded': the id has ended like this, and is not scheduled again.
--   'invalid', 'past': the due time is refused. 'moved': the queue is closed, ask the next layout.
--   {now, version} if the queue has other policies with the same or a later number: then nothing is done.
-- @promise
-- @first HGET HMGET HSET TIME ZCARD ZCOUNT ZMSCORE ZRANGE ZSCORE
-- @include clock deadline offsets generation wake
local state, queue, pool, index, final, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = clock(ARGV[1])
local soon = now + ARGV[4]
local by_policy, kinds = ARGV[5] ~= '', ARGV[6]
local count = #kinds
local sub, find = string.sub, string.find
local CONTENT = DUE_DIGITS + 2 -- where it begins in a body, behind the due and a mark

local known = redis.call('HMGET', state, 'closed', 'sleep_until', 'watermark', 'generation', 'scheduled', 'policies')
if known[6] and known[6] ~= ARGV[5] and sub(known[6], 1, 10) >= sub(ARGV[5], 1, 10) then
  return { digits(now), known[6] }
end
local stored = redis.call('HMGET', pool, unpack(ARGV, 7, 6 + count))
local any_ended = count == 1 or redis.call('EXISTS', final) == 1
local ends = any_ended and redis.call('ZMSCORE', final, unpack(ARGV, 7, 6 + count)) or {}

local answer = { digits(now) }
local records, tickets = { '', '' }, { '', '' } -- with room for the one message that most calls have
local made, members = {}, {}
local handed_back -- ids of messages that were handed back, and their due times
local outlived -- ids that have ended: they are forgotten, and then made anew
local n, m, earliest = 0, 0, math.huge
local weigh, number, generation, behind_id
for i = 1, count do
  local id, body, kind = ARGV[6 + i], ARGV[6 + count + i], byte(kinds, i)
  local text = sub(body, 1, DUE_DIGITS)
  local due = tonumber(text)
  local given = kind < 97
  local again = given and (kind == 66 or kind == 81 or kind == 83)
  if again then
    kind = kind - 1
  end
  local is_back = kind == 72
  if is_back then
    kind = 82
  end
  local relative = kind == 114 or kind == 82
  local as_it_is = kind == 97 and due and due >= soon -- then the body is what is stored
  if not as_it_is then
    due = find(text, '^%d%d%d%d%d%d%d%d%d%d%d%d%d$') and (relative and now + due or due)
  end
  local status, told, behind
  if not due or due < now or due >= 1e13 or known[1] or stored[i] or ends[i] or made[id] then
    -- The message may not be new. The functions for this case are made here, because making a function takes time in
    -- each call.
    if not weigh then
      -- @include record properties content final
      local by_both, window = earlier(state, now), tonumber(ARGV[3])

      -- Return whether the same call made a stored record. It compares the content, and the first asked due time unless
      -- that is relative.
      local function same_call(record, content, kind, asked)
        if not fields(record) then
          return false -- it is damaged
        end
        local before, first_asked = first_call(record)
        if before ~= content and untraced(before) ~= untraced(content) then
          return false
        end
        return kind == 114 or kind == 82 or tonumber(first_asked) == asked
      end

      -- Return the status and due time of a message that is not scheduled. For any other return nil, and the text
      -- behind the body if its due time moves to now.
      weigh = function(id, kind, again, due, body, record, score)
        local content, asked = first_call(string.rep('0', GENERATION) .. body)
        if not due or due >= 1e13 then
          return 'invalid', ''
        end
        if record then
          local status = 'conflict'
          if same_call(record, content, kind, tonumber(asked)) then
            status = redis.call('ZSCORE', dead, id) and 'dead' or 'live'
          end
          return status, sub(record, ASKED, MARK - 1)
        end
        local how, _, digest = ending(score, by_both, window)
        if how == CANCELLED and (again or digest == FREE) then
          how = nil -- it was never handed out, so no other message of this id can have been delivered
          if known[1] then
            outlived = outlived or {}
            outlived[#outlived + 1] = id -- or a look at this queue would say that the new message is cancelled
          end
        end
        if how == FORWARDED and digest ~= digest_of(content, asked) then
          return 'conflict', ''
        elseif how then
          return ENDS[how], ''
        elseif known[1] then
          return 'moved', ''
        elseif due < now then
          if kind == 112 or kind == 80 then
            return 'past', ''
          end
          return nil, nil, asked
        end
      end
    end
    status, told, behind = weigh(id, kind, again, due, body, stored[i] or made[id], ends[i])
  end
  if status then
    local last = #answer
    answer[last + 1], answer[last + 2], answer[last + 3] = i - 1, status, told
  else
    if not generation then
      number = (known[4] or 0) + 1
      generation = generation_of(number)
      behind_id = '\0' .. generation
    end
    if behind or not as_it_is then
      due = math.max(due, now)
      text = string.format('%013.0f', due)
      local spread = by_policy and byte(body, CONTENT - 1) == 49 -- the due that was asked for stands behind it already
      local mark = ((behind or spread) and 1 or 0) + ((given or due < soon) and 2 or 0)
      body = text .. mark .. sub(body, CONTENT) .. (not spread and behind or '')
    end
    local record = generation .. body
    if not as_it_is then
      made[id] = record
    end
    records[n + 1], records[n + 2] = id, record
    tickets[n + 1], tickets[n + 2] = text, id .. behind_id
    n = n + 2
    local topic, tags, ordering, options, high, low = byte(record, TOPIC_LENGTH, PROPERTIES_LENGTH - 1)
    if ordering > 0 and given then
      -- @include asked
      members[m + 1], members[m + 2] = '0', asked_member(id)
      m = m + 2
    end
    if ends[i] then
      outlived = outlived or {}
      outlived[#outlived + 1] = id
    end
    if high + low > 0 then
      local keys = FIELDS + topic + tags + ordering + options
      for key in string.gmatch(sub(record, keys, keys + high * 256 + low - 1), '[^ ]+') do
        members[m + 1], members[m + 2] = '0', key .. '\0' .. id
        m = m + 2
      end
    end
    if is_back then
      handed_back = handed_back or {}
      handed_back[#handed_back + 1], handed_back[#handed_back + 2] = id, '\nhand:back ' .. text
    end
    if due < earliest then
      earliest = due
    end
  end
end

if outlived then
  -- @guard EXISTS HDEL HSET ZREM
  -- @include index forget
  forget_ids(final, index, KEYS[7], KEYS[8], outlived)
end
if generation then
  redis.call('HSET', pool, unpack(records))
  redis.call('ZADD', queue, unpack(tickets))
  if handed_back then -- as a named call, but no caller gives this name
    redis.call('HSET', KEYS[8], unpack(handed_back))
  end
  for first = 1, m, 2000 do
    redis.call('ZADD', index, unpack(members, first, math.min(first + 1999, m)))
  end
  redis.call('HSET', state, 'generation', number, 'scheduled', (known[5] or 0) + n / 2)
  wake(state, ARGV[2], earliest, known[2], known[3])
end
return answer
