-- reentrant/release: releases the caller's lock on this master, or lowers its depth. Also lowers
-- the depth of fair locks.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  the depth that is left, absolute; 0 deletes the lock
-- ARGV[4]  'quorlock:reentrant' or 'quorlock:fair'
-- ARGV[5]  the channel on which waiters of Redisson listen, or '' to publish nothing
-- returns  1     the caller held it, and it is gone or less deep
--          0     nothing is held here
--          text  another holds it: see shared/holder
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: an attempt is released only once, and the depth is set, not counted.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[4], 'mode')
if stored[1] and stored[2] and tonumber(stored[2]) <= tonumber(ARGV[2]) then
  if ARGV[3] ~= '0' then
    -- The depth only informs others, so an error is ignored. A master that is out of memory must
    -- still be able to release.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
    return 1
  end
  if remove_owner(ARGV[1], ARGV[4], stored[3]) and ARGV[5] ~= '' then
    -- The message is only a hint, so an error is ignored. A user without the right to publish must
    -- still be able to release.
    redis.pcall('PUBLISH', ARGV[5], '0')
  end
  return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
return describe_holder(KEYS[1], ARGV[4], 0)
