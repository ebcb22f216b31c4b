-- fair/release: releases the lock on this master, or ends the wait for it, and notifies the next
-- waiter.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  ticket
-- returns  1     the caller held it, and it is gone
--          0     nothing is held here
--          text  another holds it: see shared/holder
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: an attempt is released once, and removing a missing ticket does
-- nothing. A waiter that left because no majority answered may be back with the same ticket. Then a
-- late run removes the ticket, and the waiter's next poll queues it at its old position.

-- `stored` is an error reply if the key is of another type.
local stored = redis.pcall('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode')
local is_mine = not stored.err and stored[1] and stored[2]
  and tonumber(stored[2]) <= tonumber(ARGV[2])
if is_mine then
  -- The lock is released first. The contents of the other keys must not prevent that.
  remove_owner(ARGV[1], 'quorlock:fair', stored[3])
end
local head, was_next
local denied = best_effort(function()
  head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  was_next = head == ARGV[3]
  if head and redis.call('ZREM', KEYS[2], ARGV[3]) == 1 then
    redis.call('ZREM', KEYS[3], ARGV[3])
  end
end)
if denied then
  return denied
end
if stored.err then
  return redis.call('HMGET', KEYS[1], ARGV[1]) -- throws the same error
end
-- If another holds the lock, a new first waiter must find out when that lock ends.
if head and (is_mine or was_next) then
  local now = clock()
  denied = best_effort(function()
    head = next_waiter(KEYS[2], now)
    if head then
      notify(head)
    end
  end)
end
if not is_mine and not denied and redis.call('EXISTS', KEYS[1]) == 1 then
  return describe_holder(KEYS[1], 'quorlock:fair', 0)
end
return denied or (is_mine and 1 or 0)
