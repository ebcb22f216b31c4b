-- shared/mine: tells what a lock's owner wrote from what others wrote. Goes before the scripts
-- that need it.
--
-- A lock has three fields: the owner, the marker, and 'mode' with the value 'quorlock', which keeps
-- Redisson's read-write lock away. A lock that was acquired by a version before that has no 'mode'.

-- Returns whether nobody else has written into the lock.
local function is_mine_alone(mode)
  return redis.call('HLEN', KEYS[1]) == (mode == 'quorlock' and 3 or 2)
end

-- Gives the lock up. Returns whether it is free now: what others have written into it is left
-- alone.
local function give_up(owner, marker, mode)
  if is_mine_alone(mode) then
    redis.call('DEL', KEYS[1])
    return true
  end
  redis.call('HDEL', KEYS[1], owner, marker)
  if mode == 'quorlock' then
    redis.call('HDEL', KEYS[1], 'mode')
  end
  return false
end

