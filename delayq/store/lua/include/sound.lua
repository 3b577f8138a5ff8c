-- Return whether a record can be read and delivered, field by field. This and codec.Record with its check_deliverable
-- refuse the same records. Only the body may have any bytes.
local find, sub, match = string.find, string.sub, string.match

-- Return how many bytes follow the first byte of a character, and the range of the second byte.
local function tail_of(first)
  if first < 128 then
    return 0
  elseif first < 194 then
    return nil
  elseif first < 224 then
    return 1, 128, 191
  elseif first < 240 then
    return 2, first == 224 and 160 or 128, first == 237 and 159 or 191
  elseif first < 245 then
    return 3, first == 240 and 144 or 128, first == 244 and 143 or 191
  end
  return nil
end

-- Return whether bytes are UTF-8 text.
local function is_text(text)
  if not find(text, '[\128-\255]') then
    return true
  end
  local at = 1
  while at <= #text do
    local tail, low, high = tail_of(byte(text, at))
    if not tail then
      return false
    end
    for i = 1, tail do
      local one = byte(text, at + i)
      if not one or one < low or one > high then
        return false
      end
      low, high = 128, 191
    end
    at = at + 1 + tail
  end
  return true
end

-- Return whether a message can have this topic. No topic begins like the names of the queues' keys.
local function is_topic(topic)
  return topic ~= '' and not find(topic, '[^A-Za-z0-9._:-]') and sub(topic, 1, 7) ~= 'delayq:'
end

-- This is the largest number of names and values that the properties of one message may have. With more, its XADD has
-- more arguments than a script can pass. It then fails after other messages were appended.
local MOST_TEXTS = 2000

-- Return whether the properties are names and values to the last byte.
local function properties_fit(record, keys_end, properties_end)
  local at, texts = keys_end + 1, 0
  while at < properties_end do
    local text, behind = text_at(record, at)
    if not is_text(text) then
      return false
    end
    at = behind
    texts = texts + 1
  end
  return at == properties_end + 1 and texts % 2 == 0 and texts <= MOST_TEXTS
end

-- Return whether the rest of a record is valid. Its topic already is.
local function is_sound(record, topic_end, tags_end, ordering_end, options_end, keys_end, properties_end, body_end, mark, flags)
  local body = flags % 64 - flags % 16
  local keyed = ordering_end > tags_end
  if flags > 127 or (body ~= 0 and body ~= 16 and body ~= 32) or (flags % 4 > 1) ~= keyed then
    return false
  end
  local expires = flags % 8 > 3
  if options_end > ordering_end or expires then
    local after = match(sub(record, ordering_end + 1, options_end), '^[0-9]*,([0-9]*)$')
    if not after or expires ~= (after ~= '') then
      return false
    end
  end
  if properties_end > keys_end and not properties_fit(record, keys_end, properties_end) then
    return false
  end
  if keys_end > topic_end and find(sub(record, topic_end + 1, keys_end), '[\128-\255]') then
    local tags, ordering = sub(record, topic_end + 1, tags_end), sub(record, tags_end + 1, ordering_end)
    if not (is_text(tags) and is_text(ordering) and is_text(sub(record, options_end + 1, keys_end))) then
      return false
    end
  end
  local moved = mark % 2 == 1
  return not find(sub(record, ASKED, MARK - 1), '[^0-9]') and not (moved and find(sub(record, body_end + 1), '[^0-9]'))
end
