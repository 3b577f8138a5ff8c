-- This part runs last, because no earlier part has checked the types of these keys. It forgets the entries of `final`
-- that are too many or too old.
if n_ends > 0 or not more and not fresh then
  local count = too_many(final, now, window, n_ends > 0 and most_final or math.huge)
  if count > 0 then
    -- @guard HDEL HSET ZREM
    forget(final, index, ended_keys, moves, count)
  end
end
