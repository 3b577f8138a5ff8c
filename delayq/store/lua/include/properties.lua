-- Properties are names and values, one after the other. The one that begins at `at`, and where the next one begins; nil if its
-- length is cut short.
local function text_at(raw, at)
  local high, low = byte(raw, at, at + 1)
  if not low then
    return nil
  end
  local behind = at + 2 + high * 256 + low
  return string.sub(raw, at + 2, behind - 1), behind
end
