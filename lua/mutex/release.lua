-- mutex/release: deletes the lock on this master if the caller holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the caller's token
-- returns  1     the caller held it, and it is gone
--          0     nothing is held here
--          -n    another holds the lock for n more milliseconds (n >= 1)
--          nil   another holds the lock without a TTL
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds no key, or the key of another holder.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
if not holder then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return false
end
return -math.max(left, 1)
