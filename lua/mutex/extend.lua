-- mutex/extend: makes the caller's lock on this master live for at least ttl from now.
--
-- KEYS[1]  the lock
-- ARGV[1]  the caller's token
-- ARGV[2]  ttl in milliseconds
-- returns  1     the caller holds it, and it lives for at least ttl
--          0     nothing is held here
--          -n    another holds the lock for n more milliseconds (n >= 1)
--          nil   another holds the lock without a TTL
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Never creates or deletes a key, and never shortens a TTL. Safe to run twice or late: a copy that
-- arrives after a longer extension changes nothing.
local holder = redis.call('GET', KEYS[1])
if not holder then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if holder == ARGV[1] then
  if left < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 1
end
if left < 0 then
  return false
end
return -math.max(left, 1)
