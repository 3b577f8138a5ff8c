-- Return whether a message belongs into the set of its topic, unless it was forced. It does if the topic is paused, if
-- `all_held` is true, or if the `bound` of its stream has no permit. It also does if that set is not empty, so that the
-- earliest message comes first. No caller can name the keys of these sets, so the script tries each set before it moves a
-- message there. Redis refuses a set of another type, or one whose cluster slot is moving (`unreachable`).
-- @include pauses
local held_topics = {}
is_paused = function(topic)
  mark_of = mark_of or paused and marks_of(paused)
  return mark_of ~= nil and mark_of(topic) < math.huge
end
is_held = function(topic, bound)
  local held, lacks = held_topics[topic], bound and bound.most < 1
  if held == nil or lacks and not held then
    held = all_held or lacks or is_paused(topic) or some_held and redis.call('HEXISTS', state, 'parked:h:' .. topic) == 1
    held_topics[topic] = held
    if held then
      local tried = redis.pcall('ZCARD', sub(state, 1, -6) .. 'parked:h:' .. topic)
      unreachable = unreachable or type(tried) == 'table' and tostring(tried.err)
    end
  end
  return held
end
