-- reentrant/extend: let my lock on this master live for at least ARGV[4] ms from now, as deep as ARGV[3].
-- For fair locks, too.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  attempt
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  'quorlock:reentrant' or 'quorlock:fair'
-- returns  1     it is mine alone and lives for at least ttl
--          0     nothing is held here
--          text  somebody else holds it, or has written into it: see shared/held
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Never creates, never deletes, never shortens. Safe to run twice or late: it does nothing but for the attempt
-- that holds the lock, and the next extension or release sets the depth right.
local mine = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[5], 'mode')
if mine[1] and mine[2] == ARGV[2] and is_mine_alone(mine[3]) then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  if mine[1] ~= ARGV[3] then
    -- For others to see: a master without memory must still be able to extend.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
  end
  return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
return held(KEYS[1], ARGV[5], 0)
