-- Finds the keys of locks of quorlock, for a list of all locks. Changes nothing. One call looks at
-- about 1,000 keys, and at the value of each that matches the pattern.
--
-- ARGV[1]  the cursor of SCAN: '0' at the start
-- ARGV[2]  the pattern of the keys
-- returns  list: the next cursor, which is '0' at the end; then the keys
--          error if the user may not use a command, or look at a key that matches
--
-- The keys that are found cannot be declared.

-- Returns whether a string is a token. A token without a client name may be any hash, such as that
-- of a commit, so it must have a TTL.
local function is_token(key)
  local value = redis.call('GETRANGE', key, 0, 119)
  local shown = string.match(value, '^' .. string.rep('[0-9a-f]', 40) .. '(.*)$')
  if shown == '' then
    return redis.call('PTTL', key) >= 0
  end
  shown = string.match(shown or '', '^@([!-~]+)$') or ''
  local client = string.match(shown, '^' .. string.rep('%d', 13) .. '@(.+)$') or shown
  return client ~= '' and #client <= 64
end

local page = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', '1000')
if page.err then
  return page
end
local found = { page[1] }
for _, key in ipairs(page[2]) do
  local type = redis.pcall('TYPE', key)
  if type.err then
    return type
  end
  local is_lock = type.ok == 'string' and is_token(key)
    or type.ok == 'hash' and redis.call('HMGET', key, 'mode')[1] == 'quorlock'
  if is_lock then
    found[#found + 1] = key
  end
end
return found
