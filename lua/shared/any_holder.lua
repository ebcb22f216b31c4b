-- shared/any_holder: describes the holder of a lock of any kind. Prepended to the scripts that use
-- it, after shared/holder.
--
-- returns  'free' or 'KIND LEFT DEPTH DIGEST OWNER'
--          KIND: mutex, reentrant, fair or other
--          LEFT: milliseconds left, -1 without a TTL
--          DIGEST: the SHA-1 of the token or the owner, because a token is a secret, and an owner
--          of another library may be long or not UTF-8; '-' for a key that is no lock
--          OWNER: for a mutex the client name, if its value is a token of this crate with a name

-- Returns the client name in the value of a mutex. Returns '' for a value of any other form,
-- because the value of another library may be a secret from the first character to the last.
local function client_in(value)
  local client = string.match(value, '^' .. string.rep('[0-9a-f]', 40) .. '@([!-~]+)$')
  return client and #client <= 64 and client or ''
end

local function describe_any_holder(key)
  local kind = redis.call('TYPE', key)['ok']
  local left = string.format('%.0f', redis.call('PTTL', key))
  if kind == 'none' then
    return 'free'
  elseif kind == 'string' then
    local value = redis.call('GET', key)
    return 'mutex ' .. left .. ' 1 ' .. redis.sha1hex(value) .. ' ' .. client_in(value)
  elseif kind == 'hash' then
    for _, name in ipairs({ 'fair', 'reentrant' }) do
      local description = describe_holder(key, 'quorlock:' .. name, 0)
      local times, owner = string.match(description, '^held (%S+ %S+) 0 (.*)$')
      if owner then
        local shown = string.gsub(owner, '\n', ' ')
        return table.concat({ name, times, redis.sha1hex(owner), shown }, ' ')
      end
    end
  end
  return 'other ' .. left .. ' 0 - '
end

