-- A content is a record from its flags on. The byte at FLAGS in the record is the first byte here.
-- @include unreserved

-- Return the content without the fields that may differ between two sends of the same call. A repeated call comes from
-- another span and follows the policies of its own time. So the trace goes, and what policies and quotas added:
-- reserved keys and an `expireAfter`. The lengths of keys and properties go with them.
local function untraced(content)
  local sub, body_length = string.sub, BODY_LENGTH - FLAGS + 1
  local traced = string.find(content, 'traceparent', 1, true)
  local flags = byte(content, 1) or 0
  if not traced and flags % 16 < 8 and flags < 64 then
    return sub(content, 1, PROPERTIES_LENGTH - FLAGS - 2) .. sub(content, body_length)
  end
  local topic, tags, ordering, options, k1, k2, p1, p2, p3 = byte(content, 2, body_length - 1)
  if not p3 then
    return content -- it is damaged
  end
  local options_at = FIELDS - FLAGS + 1 + topic + tags + ordering
  local keys_at = options_at + options
  local at = keys_at + k1 * 256 + k2
  local stop = traced and at + p1 * 65536 + p2 * 256 + p3 or at
  local keys, own = sub(content, keys_at, at - 1), sub(content, options_at, keys_at - 1)
  if flags % 16 > 7 then
    flags, keys = flags - 8, unreserved(keys)
  end
  if flags > 63 then
    flags, own = flags - 68, string.match(own, '^[0-9]+,') or ''
  end
  local kept = { string.char(flags, topic, tags, ordering, #own), sub(content, body_length, options_at - 1), own, keys }
  while at < stop do
    local name, value = text_at(content, at)
    local _, behind = text_at(content, value or #content)
    if not behind then
      return content -- so is this
    end
    if name ~= 'traceparent' then
      kept[#kept + 1] = sub(content, at, behind - 1)
    end
    at = behind
  end
  kept[#kept + 1] = sub(content, at)
  return table.concat(kept)
end

-- Return 19 bits that are the same for a repeated call. They depend on the content, and on the first asked due time (13
-- digits) unless it is relative.
local function digest_of(content, asked)
  local relative = (byte(content, 1) or 0) % 2 == 1
  local hash = redis.sha1hex(untraced(content) .. (relative and '' or asked))
  return math.floor(tonumber(string.sub(hash, 1, 5), 16) / 2)
end

-- Return the content of a record, and its first asked due time.
local function first_call(record)
  if byte(record, MARK) % 2 == 0 then
    return string.sub(record, FLAGS), string.sub(record, ASKED, MARK - 1)
  end
  return string.sub(record, FLAGS, -1 - DUE_DIGITS), string.sub(record, -DUE_DIGITS)
end
