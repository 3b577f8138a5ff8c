-- Return the ids that the caller may change. The arguments begin at `first`: '1' if the caller has rights for some
-- topics only, or ''. Then come the ids. With '1', the expected topic of each id follows: the topic of its message when
-- the rights were checked. An id whose message now has another topic becomes '', which is no valid id. So an expected
-- topic of '' allows only an id without a message.
local function allowed_ids(pool, first)
  local limited = ARGV[first] == '1'
  local count = #ARGV - first
  if limited then
    count = count / 2
  end
  local ids = {}
  for i = 1, count do
    local id = ARGV[first + i]
    local record = limited and redis.call('HGET', pool, id)
    if record then
      local topic_end = fields(record)
      if not topic_end or string.sub(record, FIELDS, topic_end) ~= ARGV[first + count + i] then
        id = ''
      end
    end
    ids[i] = id
  end
  return ids
end
