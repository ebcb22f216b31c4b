-- reentrant/acquire: take the lock on this master for an owner, if it is free or the owner's already. Also puts a fair
-- lock back that this master lost, whoever waits for it here.
--
-- KEYS[1]  the lock: a hash, owner -> depth, ARGV[5] -> attempt, and 'mode' -> 'quorlock'
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger for every new one of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  'quorlock:reentrant' or 'quorlock:fair'
-- KEYS[2], ARGV[6], ARGV[7]  of a fenced lock: the counter, my candidate, how far it may be off: see shared/ballot
-- returns  1     it is mine, as deep as asked, and lives for at least ttl
--          text  somebody else holds it: see shared/held; or the candidate cannot win: see shared/ballot
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: depth is set, not counted. Safe to run late: an attempt that a later one of the same
-- owner has replaced is refused, as the later one may rely on what it finds here.
if redis.call('EXISTS', KEYS[1]) == 0 then
  local refused = KEYS[2] and ballot(KEYS[2], ARGV[6], ARGV[7], false)
  return refused or hold(true, ARGV[1], ARGV[3], ARGV[5], ARGV[2], ARGV[4])
end
local mine = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[5], 'mode')
if not mine[1] or not mine[2] or tonumber(mine[2]) > tonumber(ARGV[2]) or not is_mine_alone(mine[3]) then
  return held(KEYS[1], ARGV[5], 0)
end
local refused = KEYS[2] and ballot(KEYS[2], ARGV[6], ARGV[7], mine[2] == ARGV[2])
return refused or hold(false, ARGV[1], ARGV[3], ARGV[5], ARGV[2], ARGV[4])
