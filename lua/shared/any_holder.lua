-- shared/any_holder: describes the holder of a lock of any kind. Prepended to the scripts that use
-- it, after `kinds`: what the describe.lua of each kind returns, which is a table with
--
-- name         the name of the kind
-- type         the type of the key of a lock
-- describe     a function of a key of that type. Returns the depth, the token or the owner, and
--              what is shown of it; nil if the key is no lock of the kind
-- waiters      returns a list of the waiters; may be missing
-- on_break     tells waiters that a lock was broken; may be missing. Its arguments are the name of
--              the lock's kind, and the channel on which waiters of Redisson listen
--
-- returns  'free' or 'KIND LEFT DEPTH DIGEST OWNER'
--          KIND: the name of a kind, or other
--          LEFT: milliseconds left, -1 without a TTL
--          DIGEST: the SHA-1 of the token or the owner, because a token is a secret, and an owner
--          of another library may be long or not UTF-8; '-' for a key that is no lock
--          OWNER: for a mutex the client name, if its value is a token of this crate with a name
local function describe_any_holder(key)
  local type = redis.call('TYPE', key)['ok']
  if type == 'none' then
    return 'free'
  end
  local left = string.format('%.0f', redis.call('PTTL', key))
  for _, kind in ipairs(kinds) do
    if kind.type == type then
      local depth, holder, shown = kind.describe(key)
      if holder then
        return table.concat({ kind.name, left, depth, redis.sha1hex(holder), shown }, ' ')
      end
    end
  end
  return 'other ' .. left .. ' 0 - '
end

