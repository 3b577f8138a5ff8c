-- A content without the trace that it was scheduled in (and without the length of its properties): the same call,
-- repeated, comes from another span.
local function untraced(content)
  if not string.find(content, 'traceparent', 1, true) then
    return string.sub(content, 1, 7) .. string.sub(content, 11)
  end
  local topic, tags, ordering, options, k1, k2, p1, p2, p3 = byte(content, 2, 10)
  if not p3 then
    return content -- it is damaged
  end
  local at = 15 + topic + tags + ordering + options + k1 * 256 + k2
  local stop = at + p1 * 65536 + p2 * 256 + p3
  local kept = { string.sub(content, 1, 7), string.sub(content, 11, at - 1) }
  while at < stop do
    local h, l = byte(content, at, at + 1)
    local value = l and at + 2 + h * 256 + l or #content
    local vh, vl = byte(content, value, value + 1)
    if not vl then
      return content -- so is this
    end
    local behind = value + 2 + vh * 256 + vl
    if string.sub(content, at + 2, value - 1) ~= 'traceparent' then
      kept[#kept + 1] = string.sub(content, at, behind - 1)
    end
    at = behind
  end
  kept[#kept + 1] = string.sub(content, at)
  return table.concat(kept)
end

-- 19 bits of what the same call has in common when it is repeated: the content, and the due (13 digits) first asked for
-- unless it is relative.
local function digest_of(content, asked)
  local relative = (byte(content, 1) or 0) % 2 == 1
  local hash = redis.sha1hex(untraced(content) .. (relative and '' or asked))
  return math.floor(tonumber(string.sub(hash, 1, 5), 16) / 2)
end

-- Of a record: its content, and the due first asked for.
local function first_call(record)
  local moved = byte(record, MARK) % 2 == 1
  return string.sub(record, FLAGS, moved and -14 or -1), moved and string.sub(record, -13) or string.sub(record, ASKED, 20)
end
