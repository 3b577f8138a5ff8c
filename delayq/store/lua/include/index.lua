-- @include asked
-- The members of the index that lead from keys, a space between two, to `id`: appended to `members`.
local function add_key_members(members, keys, id)
  for key in string.gmatch(keys, '[^ ]+') do
    members[#members + 1] = key .. '\0' .. id
  end
end

-- The keys of a message that ends: its business keys, which stay in the index as long as its id is remembered. Its reserved ones
-- count what is pending, so their members, which have to go, are appended to `members`.
local function split_keys(members, keys, id)
  local own = unreserved(keys)
  if #own < #keys then
    add_key_members(members, string.sub(keys, #own + 1), id)
  end
  return own
end

-- Return the value of an id in `ended` (`commands.ack` writes the same). It has the business keys, a space, the byte 1,
-- the topic, a NUL byte, and the name of the API key that ended it. The keys come first, so that a process of a former
-- version finds them. It takes the rest for one more key. A value of such a process has only the keys.
local function end_of(keys, topic, by)
  return keys .. ' \1' .. topic .. '\0' .. by
end

-- The same of a record. A damaged one has neither keys nor a topic: a topic that is cut short may be another one.
local function end_of_record(members, record, id, by)
  local topic_end, _, _, options_end, keys_end = fields(record)
  if not topic_end then
    return end_of('', '', by)
  end
  local keys = string.sub(record, options_end + 1, keys_end)
  return end_of(split_keys(members, keys, id), string.sub(record, FIELDS, topic_end), by)
end
