-- shared/hold: writes down who holds a lock, to live for at least so many ms. Goes in front of the scripts that grant.
--
-- returns  1      it is written down
--          error  who may not set a TTL gets no lock: one without would never end
local function hold(is_new, owner, depth, marker, attempt, ttl)
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

