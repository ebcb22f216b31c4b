-- read_write/yield: gives back what this master granted to an attempt without a majority, and keeps
-- the waiter in its queue.
--
-- KEYS[1]..KEYS[4]  see shared/entries
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  'read' or 'write': what the caller waits for
-- ARGV[4]  ticket
-- ARGV[5]  silent-waiter timeout: how long to stay queued without asking again, in milliseconds
-- returns  1     the caller had an entry, and it is gone
--          0     the caller had none
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late, for the reasons of fair/yield.
local queue = KEYS[ARGV[3] == 'write' and 2 or 4]
local now = clock()
local is_removed, was_writer = remove_attempt((few_entries(ARGV[1])), ARGV[1], ARGV[2])
if not is_removed then
  return 0
end
local denied = best_effort(function()
  redis.call('ZSCORE', queue, ARGV[4]) -- throws on a wrong type before anything is written
  enqueue(queue, ARGV[4], now, tonumber(ARGV[5]))
  call_next(now, ARGV[4], not was_writer)
end)
return denied or 1
