-- reentrant/release: give up my lock on this master, or levels of it. For the levels of fair locks, too.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  attempt: it and those before it are given up
-- ARGV[3]  the depth that is left, absolute: 0 gives the lock up
-- ARGV[4]  'quorlock:reentrant' or 'quorlock:fair'
-- ARGV[5]  the channel on which waiters are told that it is gone, or '' to tell nobody
-- ARGV[6]  the message: '0', or '00' after a lost round, which is the same number to Redisson
-- returns  1     it was mine, and is gone or less deep
--          0     nothing is held here
--          text  somebody else holds it: see shared/held
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: the attempt is given up once, and depth is set, not counted.
local mine = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[4], 'mode')
if mine[1] and mine[2] and tonumber(mine[2]) <= tonumber(ARGV[2]) then
  if ARGV[3] ~= '0' then
    -- For others to see: a master without memory must still be able to release.
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
    return 1
  end
  if give_up(ARGV[1], ARGV[4], mine[3]) and ARGV[5] ~= '' then
    -- A hint: who may not publish must still be able to release.
    redis.pcall('PUBLISH', ARGV[5], ARGV[6])
  end
  return 1
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
return held(KEYS[1], ARGV[4], 0)
