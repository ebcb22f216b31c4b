-- semaphore/yield: gives back what this master granted to an attempt without a majority, and keeps
-- the waiter in the queue.
--
-- KEYS[1]..KEYS[3]  see shared/permits
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  ticket
-- ARGV[4]  silent-waiter timeout: how long to stay queued without asking again, in milliseconds
-- returns  1     the caller had an entry, and it is gone
--          0     the caller had none
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late, for the reasons of fair/yield.
local now = clock()
local mine = own_permit(ARGV[1])
if not mine or mine.attempt > tonumber(ARGV[2]) then
  return 0
end
remove_permit(KEYS[1], mine)
local denied = best_effort(function()
  redis.call('ZSCORE', KEYS[2], ARGV[3]) -- throws on a wrong type before anything is written
  enqueue(KEYS[2], ARGV[3], now, tonumber(ARGV[4]))
  call_waiters(now, 1, ARGV[3])
end)
return denied or 1
