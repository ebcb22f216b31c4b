-- shared/any_holder: describes the holders of a lock of any kind. Prepended to the scripts that use
-- it, after `kinds`: what the describe.lua of each kind returns, which is a table with
--
-- name         the name of the kind
-- type         the type of the key of a lock
-- describe     a function of a key of that type. Returns a list of the holders; nil if the key is
--              no lock of the kind. A holder is a table with
--                by     the token or the owner. Holders with the same `by` are the same
--                shown  the text that is shown for `by`
--                depth  the depth
--                left   milliseconds left; if missing, the TTL of the key counts
--                is_shared  true if others may hold the lock at the same time; may be missing
-- remove       a function of the key and of `by`: deletes this holder, and no other
-- waiters      returns a list of the waiters; may be missing
-- on_break     tells waiters that a lock was broken; may be missing. Its arguments are the name of
--              the lock's kind, and the channel on which waiters of Redisson listen
--
-- returns  the kind and its list of holders. Each holder also has `left`, and `digest`: the SHA-1
--          of `by`, because a token is a secret, and an owner of another library may be long or
--          not UTF-8. Returns nil and an empty list for a free lock, and nil and one holder for a
--          key that is no lock
local function describe_holders(key)
  local type = redis.call('TYPE', key)['ok']
  if type == 'none' then
    return nil, {}
  end
  local left = redis.call('PTTL', key)
  for _, kind in ipairs(kinds) do
    local holders = kind.type == type and kind.describe(key)
    if holders then
      for _, holder in ipairs(holders) do
        holder.left = holder.left or left
        holder.digest = redis.sha1hex(holder.by)
      end
      return kind, holders
    end
  end
  return nil, { { left = left, depth = 0, digest = '-', shown = '' } }
end

