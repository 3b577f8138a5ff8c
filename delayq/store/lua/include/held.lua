-- Whether a message that was not forced belongs into the set of its topic: if its topic is paused, if that set is not empty, so
-- that the earliest comes first, or if all do (`all_held`). No caller can name the keys of these sets, so each is tried before anything is moved there: while
-- its slot of a cluster moves a script may not touch it, and it may be of another type (`unreachable`).
-- @include pauses
local held_topics = {}
is_paused = function(topic)
  mark_of = mark_of or paused and marks_of(paused)
  return mark_of ~= nil and mark_of(topic) < math.huge
end
is_held = function(topic)
  local held = held_topics[topic]
  if held == nil then
    held = all_held or is_paused(topic) or some_held and redis.call('HEXISTS', state, 'parked:h:' .. topic) == 1
    held_topics[topic] = held
    if held then
      local tried = redis.pcall('ZCARD', sub(state, 1, -6) .. 'parked:h:' .. topic)
      unreachable = unreachable or type(tried) == 'table' and tostring(tried.err)
    end
  end
  return held
end
