-- shared/ownership: distinguishes the fields that the lock's owner wrote from fields that others
-- wrote. Prepended to the scripts that use it.
--
-- A lock has three fields: the owner, the marker ('quorlock:reentrant' or 'quorlock:fair'), and
-- 'mode' with the value 'quorlock'. The field 'mode' keeps Redisson's read-write lock away.

-- Returns whether only the owner has written into the lock.
local function is_unaltered(mode)
  return mode == 'quorlock' and redis.call('HLEN', KEYS[1]) == 3
end

-- Removes the owner's fields from the lock. Fields that others have written stay. Returns whether
-- the lock is free now.
local function remove_owner(owner, marker, mode)
  if is_unaltered(mode) then
    redis.call('DEL', KEYS[1])
    return true
  end
  redis.call('HDEL', KEYS[1], owner, marker)
  if mode == 'quorlock' then
    redis.call('HDEL', KEYS[1], 'mode')
  end
  return false
end

