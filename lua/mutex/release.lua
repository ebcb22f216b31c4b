-- mutex/release: give up the lock on this master, if it is mine.
--
-- KEYS[1]  the lock
-- ARGV[1]  my token
-- ARGV[2]  the channel on which waiters are told that it is gone, or '' to tell nobody
-- returns  1     it was mine and is gone
--          0     nothing is held here
--          -n    somebody else holds it for n more milliseconds (n >= 1)
--          nil   somebody else holds it without a TTL
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds nothing, or a key that is not mine.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if ARGV[2] ~= '' then
    -- A hint: who may not publish must still be able to release.
    redis.pcall('PUBLISH', ARGV[2], '0')
  end
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
