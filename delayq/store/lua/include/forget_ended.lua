-- Last, as it looks at keys whose type nobody has looked at yet: how ids ended is forgotten where it is too much, or too long ago.
if n_ends > 0 or not more and not fresh then
  local count = too_many(final, now, window, n_ends > 0 and most_final or math.huge)
  if count > 0 then
    -- @guard HDEL HSET ZREM
    forget(final, index, ended_keys, count)
  end
end
