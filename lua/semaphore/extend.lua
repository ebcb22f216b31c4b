-- semaphore/extend: makes the caller's entry on this master live for at least ttl from now.
--
-- KEYS[1]..KEYS[3]  see shared/permits
-- ARGV[1]  owner
-- ARGV[2]  attempt
-- ARGV[3]  ttl in milliseconds
-- ARGV[4]  the slot that the caller holds
-- returns  1     the entry is the caller's, and lives for at least ttl
--          0     the caller does not have its slot here, and no one else has it
--          text  another has the slot, or a later attempt of the owner has one, or the lock is of
--                another kind: see shared/permits
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Removes an entry of the caller with another slot, and notifies the next waiter. Never creates an
-- entry, and never shortens a TTL. Safe to run twice or late: it acts only for the attempt that has
-- the entry. Never prolongs an entry whose lease has ended, because another may have been granted
-- the slot since.
local now = clock()
local mine, is_lock, earliest = own_permit(ARGV[1])
if not is_lock then
  return 'kind'
end
if mine and mine.attempt == tonumber(ARGV[2]) and mine.slot == ARGV[4] and mine.ends >= now then
  local ends = math.max(mine.ends, now + tonumber(ARGV[3]))
  -- A master that is out of memory refuses HSET as the first write, so PEXPIRE comes first.
  local left = math.max(redis.call('PTTL', KEYS[1]), ends - now)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
  return store_permit(mine, ends, now)
end
if mine and mine.attempt == tonumber(ARGV[2]) and mine.slot ~= ARGV[4] then
  -- Another slot is of no use: the caller has its own on a majority of masters.
  remove_permit(KEYS[1], mine)
  best_effort(function()
    call_waiters(now, 1)
  end)
end
local holder = redis.call('HMGET', KEYS[1], SLOT .. ARGV[4])[1]
local is_other = holder and holder ~= ARGV[1]
if is_other then
  local other = own_permit(holder)
  is_other = other and other.ends >= now
end
if is_other or mine and mine.attempt > tonumber(ARGV[2]) and mine.ends >= now then
  return describe_permits(now, earliest, 0)
end
return 0
