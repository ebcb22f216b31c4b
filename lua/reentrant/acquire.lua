-- reentrant/acquire: take the lock on this master for an owner, if it is free or his already.
--
-- KEYS[1]  the lock: a hash, owner -> depth, and 'quorlock:reentrant' -> attempt
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger for every new one of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- returns  1     it is mine, as deep as asked, and lives for at least ttl
--          text  somebody else holds it: see shared/held
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: depth is set, not counted. Safe to run late: an attempt that a later one of the same
-- owner has replaced is refused, as the later one may rely on what it finds here.
local mine = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:reentrant')
if mine[1] then
  if not mine[2] or tonumber(mine[2]) > tonumber(ARGV[2]) then
    return held(KEYS[1], 'quorlock:reentrant', 0)
  end
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return held(KEYS[1], 'quorlock:reentrant', 0)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], 'quorlock:reentrant', ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return 1
