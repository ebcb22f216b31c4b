-- mutex/acquire: takes a fenced mutex on this master if it is free and the candidate is accepted.
-- A mutex that is not fenced is acquired with SET NX PX, without a script.
--
-- KEYS[1]  the lock
-- KEYS[2]  the counter
-- ARGV[1]  the caller's token
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  the caller's candidate
-- ARGV[4]  how far the candidate may be from this master's time, in microseconds; 0: any distance
-- returns  1     granted; the key lives for at least ttl
--          -n    another holds the lock for n more milliseconds (n >= 1)
--          nil   another holds the lock without a TTL
--          text  'stale ..', 'skew ..': see shared/ballot
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds the token and the candidate of the first. An acquisition
-- is safe to run late, after its release: the release has raised the counter to the candidate, so
-- the candidate is refused. A late heal may leave the lock here for its TTL.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local refused = ballot(KEYS[2], ARGV[3], ARGV[4], false)
  if refused then
    redis.call('DEL', KEYS[1])
  end
  return refused or 1
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 then
    return false
  end
  return -math.max(left, 1)
end
local refused = ballot(KEYS[2], ARGV[3], ARGV[4], true)
if not refused and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return refused or 1
