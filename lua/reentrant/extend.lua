-- reentrant/extend: makes the caller's lock on this master live for at least ttl from now, and sets
-- its depth. Also used for fair locks.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  attempt
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  'quorlock:reentrant' or 'quorlock:fair'
-- returns  1     the caller alone holds it, and it lives for at least ttl
--          0     nothing is held here
--          text  another holds it, or has written into it: see shared/holder
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Never creates or deletes a key, and never shortens a TTL. Safe to run twice or late: it acts only
-- for the attempt that holds the lock. If it sets an old depth, the next extension or release
-- corrects that.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[5], 'mode')
if stored[1] and stored[2] == ARGV[2] and is_unaltered(stored[3]) then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  if stored[1] ~= ARGV[3] then
    -- The depth only informs others, so an error is ignored. A master that is out of memory must
    -- still be able to extend.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
  end
  return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
return describe_holder(KEYS[1], ARGV[5], 0)
