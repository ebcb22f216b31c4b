-- mutex/acquire_watched: takes a mutex on this master if it is free. Otherwise reads the key, so
-- that a client that tracks the key hears of its next change. For a mutex that is not fenced.
--
-- KEYS[1]  the lock
-- ARGV[1]  the caller's token
-- ARGV[2]  ttl in milliseconds
-- returns  1     granted; the key lives for ttl from the first run
--          -n    another holds the lock for n more milliseconds (n >= 1)
--          nil   another holds the lock without a TTL
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds the caller's own token. Safe to run late: the release
-- comes after it on the same connection.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 1
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return false
end
return -math.max(left, 1)
