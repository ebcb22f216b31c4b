-- fair/yield: releases the lock that this master granted to an attempt without a majority, and
-- keeps the waiter in the queue.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  ticket
-- ARGV[4]  silent-waiter timeout: how long to stay queued without asking again, in milliseconds
-- returns  1     the caller held it, and it is free again
--          0     the caller did not hold it
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds that the caller does not hold the lock. Safe to run late,
-- after a release or after the next attempt: every round of a queued waiter is a new attempt, and a
-- yield releases only its own attempt and earlier ones.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode')
if not stored[1] or not stored[2] or tonumber(stored[2]) > tonumber(ARGV[2]) then
  return 0
end
local now = clock()
remove_owner(ARGV[1], 'quorlock:fair', stored[3])
local denied = best_effort(function()
  redis.call('ZSCORE', KEYS[2], ARGV[3]) -- throws on a wrong type before anything is written
  enqueue(KEYS[2], ARGV[3], now, tonumber(ARGV[4]))
  local head = next_waiter(KEYS[2], now)
  if head and head ~= ARGV[3] then
    notify(head)
  end
end)
return denied or 1
