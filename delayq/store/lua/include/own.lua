-- For somebody who may touch messages of certain topics only: of each of `count` ids, from the argument `first` on, the
-- last arguments name the topic that its message had when it was looked at. An id whose message has another topic
-- becomes '', which is no id at all; an expected topic of '' fits ids only that have no message (any more).
-- Returns what is left of ARGV.
local function only_own(pool, first, count)
  local arguments = {}
  for i = 1, #ARGV - count do
    arguments[i] = ARGV[i]
  end
  for i = first, first + count - 1 do
    local topic = ARGV[#ARGV - count + 1 + i - first]
    local record = redis.call('HGET', pool, ARGV[i])
    if record then
      local last = fields(record)
      if not last or string.sub(record, FIELDS, last) ~= topic then
        arguments[i] = ''
      end
    end
  end
  return arguments
end
