-- shared/any_holder: describes the holder of a lock of any kind. Prepended to the scripts that use
-- it, after shared/holder.
--
-- returns  'KIND LEFT DEPTH OWNER'
--          KIND: free, mutex, reentrant, fair or other
--          LEFT: milliseconds left, -1 without a TTL
--          OWNER: for a mutex the SHA-1 of its value, because the token is a secret; then '@' and
--          the client name, if the value is a token of this crate with a name

-- Returns '@' and the client name in the value of a mutex. Returns '' for a value of any other
-- form, because the value of another library may be a secret from the first character to the last.
local function client_in(value)
  local client = string.match(value, '^' .. string.rep('[0-9a-f]', 40) .. '(@[!-~]+)$')
  return client and #client <= 65 and client or ''
end

local function describe_any_holder(key)
  local kind = redis.call('TYPE', key)['ok']
  local left = string.format('%.0f', redis.call('PTTL', key))
  if kind == 'none' then
    return 'free 0 0 '
  elseif kind == 'string' then
    local value = redis.call('GET', key)
    return 'mutex ' .. left .. ' 1 ' .. redis.sha1hex(value) .. client_in(value)
  elseif kind == 'hash' then
    for _, name in ipairs({ 'fair', 'reentrant' }) do
      local description = describe_holder(key, 'quorlock:' .. name, 0)
      if description ~= 'kind' then
        description = string.gsub(description, '^held (%S+ %S+) 0', name .. ' %1')
        return (string.gsub(description, '\n', ' '))
      end
    end
  end
  return 'other ' .. left .. ' 0 '
end

