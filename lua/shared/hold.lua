-- shared/hold: writes down who holds a lock, to live for at least so many ms. Goes in front of the scripts that grant.
--
-- returns  1      it is written down
--          error  who may not set a TTL gets no lock: one without would never end
local function hold(key, owner, depth, marker, attempt, ttl)
  redis.call('HSET', key, owner, depth, marker, attempt)
  if redis.call('PTTL', key) >= tonumber(ttl) then
    return 1
  end
  local set = redis.pcall('PEXPIRE', key, ttl)
  if type(set) == 'table' then
    redis.call('DEL', key)
    return set
  end
  return 1
end

