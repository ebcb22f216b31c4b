-- shared/any_holder: describes the holder of a lock of any kind. Prepended to the scripts that use
-- it, after shared/holder.
--
-- returns  'KIND LEFT DEPTH OWNER'
--          KIND: free, mutex, reentrant, fair or other
--          LEFT: milliseconds left, -1 without a TTL
--          OWNER: for a mutex the SHA-1 of its token, because the token is a secret
local function describe_any_holder(key)
  local kind = redis.call('TYPE', key)['ok']
  local left = string.format('%.0f', redis.call('PTTL', key))
  if kind == 'none' then
    return 'free 0 0 '
  elseif kind == 'string' then
    return 'mutex ' .. left .. ' 1 ' .. redis.sha1hex(redis.call('GET', key))
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

