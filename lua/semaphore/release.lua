-- semaphore/release: removes the caller's entry on this master, or ends its wait, and notifies the
-- next waiter.
--
-- KEYS[1]..KEYS[3]  see shared/permits
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released, whatever slot they have
-- ARGV[3]  ticket
-- ARGV[4]  permits: the number of slots, as the caller knows it
-- returns  1     the caller had an entry, and it is gone
--          0     the caller has no entry, and a permit is free
--          text  all permits are held, or the lock is of another kind: see shared/permits
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: an attempt is released once, and removing a missing ticket does
-- nothing.
local now = clock()
-- The key may be of another type. The ticket must be removed all the same.
local is_hash, mine, is_lock, earliest = pcall(own_permit, ARGV[1])
local is_mine = is_hash and mine and mine.attempt <= tonumber(ARGV[2])
if is_mine then
  -- The entry is removed first. The contents of the other keys must not prevent that.
  remove_permit(KEYS[1], mine)
end
local swept = 0
if is_hash and is_lock and earliest and earliest < now then
  -- Entries whose leases have ended must not outlive the last holder.
  local count, first = sweep_permits(KEYS[1], now)
  swept, earliest = count or 0, first or earliest
end
local denied = best_effort(function()
  local has_left = redis.call('ZREM', KEYS[2], ARGV[3]) == 1
  if has_left then
    redis.call('ZREM', KEYS[3], ARGV[3])
  end
  call_waiters(now, swept + ((is_mine or has_left) and 1 or 0))
end)
if denied then
  return denied
end
if not is_hash then
  return to_error_reply(mine)
end
if is_mine then
  return 1
end
if not is_lock then
  return 'kind'
end
local used = math.max(redis.call('HLEN', KEYS[1]) - 2, 0) / 2
return used >= tonumber(ARGV[4]) and describe_permits(now, earliest, 0) or 0
