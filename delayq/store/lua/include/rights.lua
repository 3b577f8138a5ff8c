-- Whom the caller may touch. The arguments from `first` on: '1' for a caller that may touch messages of some topics only,
-- or ''; then the ids; then, after '1', of each id the topic that its message had when it was looked at.
-- Returns the ids. One whose message has another topic than that becomes '', which is no id at all; so an expected topic
-- of '' fits ids only that have no message (any more).
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
