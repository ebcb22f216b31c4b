-- reentrant/acquire: takes the lock on this master for an owner, if the lock is free or that owner
-- already holds it. Also restores a fair lock that this master lost, regardless of its waiters.
--
-- KEYS[1]  the lock: a hash, owner -> depth, ARGV[5] -> attempt, and 'mode' -> 'quorlock'
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger than that of any earlier attempt of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  'quorlock:reentrant' or 'quorlock:fair'
-- KEYS[2], ARGV[6], ARGV[7]  for a fenced lock: the counter, the caller's candidate and its
--          window: see shared/ballot
-- returns  1     granted at the given depth; the key lives for at least ttl
--          text  another holds it: see shared/holder
--          text  'stale ..', 'skew ..': the candidate is refused, see shared/ballot
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the depth is set, not counted. Safe to run late: after a later attempt of the
-- same owner, an earlier one is refused, because the later attempt may rely on what it found here.
if redis.call('EXISTS', KEYS[1]) == 0 then
  local refused = KEYS[2] and ballot(KEYS[2], ARGV[6], ARGV[7], false)
  return refused or store_lock(true, ARGV[1], ARGV[3], ARGV[5], ARGV[2], ARGV[4])
end
local stored = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[5], 'mode')
if not stored[1] or not stored[2] or tonumber(stored[2]) > tonumber(ARGV[2])
    or not is_unaltered(stored[3]) then
  return describe_holder(KEYS[1], ARGV[5], 0)
end
local refused = KEYS[2] and ballot(KEYS[2], ARGV[6], ARGV[7], stored[2] == ARGV[2])
return refused or store_lock(false, ARGV[1], ARGV[3], ARGV[5], ARGV[2], ARGV[4])
