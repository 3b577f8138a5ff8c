-- Return a record with another due time and generation. The first asked due time is kept at its end: a repeated
-- schedule call is compared with it.
local function moved(record, generation, due, remembered)
  local mark = (byte(record, MARK) or 48) - 48 -- one that is cut short stays so, and becomes a dead letter at its due
  local content = string.sub(record, FLAGS)
  if mark % 2 == 0 then
    content = content .. string.sub(record, ASKED, MARK - 1)
  end
  return generation .. string.format('%013.0f', due) .. ((remembered or mark >= 2) and 3 or 1) .. content
end
