-- shared/store: writes the holder of a lock, with a TTL of at least `ttl` ms. Prepended to the
-- scripts that grant.
--
-- returns  1      the lock is stored
--          error  the TTL could not be set. The lock was deleted, because without a TTL it would
--                 never end
local function store_lock(is_new, owner, depth, marker, attempt, ttl)
  redis.call('HSET', KEYS[1], owner, depth, marker, attempt, 'mode', 'quorlock')
  if not is_new and redis.call('PTTL', KEYS[1]) >= tonumber(ttl) then
    return 1
  end
  local set = redis.pcall('PEXPIRE', KEYS[1], ttl)
  if type(set) == 'table' then
    redis.call('DEL', KEYS[1])
    return set
  end
  return 1
end

