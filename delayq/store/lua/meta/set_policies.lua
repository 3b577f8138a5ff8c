-- Change policies and pauses, all at once, and give them a version later than any before. A field that already has the
-- wanted value does not change, so a repeated call changes nothing. A version is 10 digits that count, a '.', and 10
-- random digits of its change. Without the random digits, a Redis server that lost a change would give its version to
-- another one. The time of the version is recorded, too. All workers and clients read all policies, so the script
-- limits their number. One bound is for the pauses and the limits that resumes have left, one is for the policies. A
-- bound never refuses a change that replaces or removes one.
-- KEYS: policies audit.
-- ARGV: now, random digits, number seen, version to exceed, entry or '', bound, bound of a key, patterns, the changes,
--   deadline.
--   The number seen is that of the version that the caller has read ('' = any).
--   The new version is later than the version to exceed ('' = none).
--   The bounds are for each kind, in total and on the topics of the caller's key. The patterns are its topics, a line
--   each ('' = all).
--   A change is: field, expected value ('' = none, '*' = any), new value ('' = none), '1' to keep the time since when
--   the field has a value.
--   See include/audit and include/deadline.
-- Returns: {'ok', the version now, '1' if this call made it, times}, {'stale', the version now, '0'}, or {'full', kind,
--   bound, key}.
--   The times show since when (ms) each field has its value, '' if it has none. 'stale' means that another caller
--   changed it.
--   The kind is 'pause' or 'policy'. The last element is '1' if the bound is that of a key.
-- @flags allow-oom
-- @promise
-- @include clock deadline glob
local policies, audit, entry = KEYS[1], KEYS[2], ARGV[5]
local now = clock(ARGV[1])
local version = redis.call('HGET', policies, 'version') or ''
local number = tonumber(string.sub(version, 1, 10)) or 0
local answer, changes, times = { 'ok', version, '0' }, {}, {}
local stale = ARGV[3] ~= '' and tonumber(ARGV[3]) ~= number
local refused = false
local added = { pause = 0, policy = 0 }
local function kind_of(field)
  local kind = string.match(field, '^(%a+):')
  return kind == 'limit' and 'pause' or kind
end
for i = 9, #ARGV, 4 do
  local stored = redis.call('HGET', policies, ARGV[i]) or ''
  local since, value = string.match(stored, '^(%d+) (.*)$')
  if (value or '') == ARGV[i + 2] then
    answer[#answer + 1] = since or ''
  else
    refused = refused or stale or (ARGV[i + 1] ~= '*' and ARGV[i + 1] ~= (value or ''))
    times[i] = ARGV[i + 3] == '1' and since or digits(now)
    answer[#answer + 1] = ARGV[i + 2] ~= '' and times[i] or ''
    changes[#changes + 1] = i
    local kind = kind_of(ARGV[i])
    if added[kind] then
      added[kind] = added[kind] + (value and 0 or 1) - (ARGV[i + 2] == '' and 1 or 0)
    end
  end
end
if refused then
  return { 'stale', version, '0' }
end
if added.pause > 0 or added.policy > 0 then
  local own, all, of_key = {}, { pause = 0, policy = 0 }, { pause = 0, policy = 0 }
  for pattern in string.gmatch(ARGV[8], '[^\n]+') do
    own[#own + 1] = glob(pattern)
  end
  local fields = redis.call('HGETALL', policies)
  for i = 1, #fields, 2 do
    local kind = kind_of(fields[i])
    if all[kind] then
      all[kind] = all[kind] + 1
      local match = string.match(fields[i], ':(.*)$')
      if kind == 'policy' then
        match = string.match(fields[i + 1], '"match":"([^"]*)"') or ''
      end
      for _, parts in ipairs(own) do
        if matches(parts, match) then
          of_key[kind] = of_key[kind] + 1
          break
        end
      end
    end
  end
  for _, kind in ipairs({ 'pause', 'policy' }) do
    if added[kind] > 0 and all[kind] + added[kind] > tonumber(ARGV[6]) then
      return { 'full', kind, ARGV[6], '' }
    end
    if added[kind] > 0 and #own > 0 and of_key[kind] + added[kind] > tonumber(ARGV[7]) then
      return { 'full', kind, ARGV[7], '1' }
    end
  end
end
local lost = ARGV[4] ~= version and string.sub(ARGV[4], 1, 10) >= string.sub(version, 1, 10)
if #changes > 0 or ARGV[4] ~= '' and lost then
  number = math.max(number, tonumber(string.sub(ARGV[4], 1, 10)) or 0) + 1
  answer[2], answer[3] = string.format('%010.0f.', number) .. ARGV[2], '1'
  redis.call('HSET', policies, 'version', answer[2], 'changed', digits(now))
  for _, i in ipairs(changes) do
    if ARGV[i + 2] == '' then
      redis.call('HDEL', policies, ARGV[i])
    else
      redis.call('HSET', policies, ARGV[i], times[i] .. ' ' .. ARGV[i + 2])
    end
  end
  if entry ~= '' and #changes > 0 then
    local noted = {}
    for n, i in ipairs(changes) do
      noted[n] = ARGV[i] .. ' ' .. ARGV[i + 2]
    end
    -- @include audit
  end
end
return answer
