-- fair/yield: give back what this master granted to an attempt that found no majority, and keep its place.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines
-- ARGV[1]  owner
-- ARGV[2]  attempt: it and those before it are given up
-- ARGV[3]  ticket
-- ARGV[4]  for how long to be queued without another call, in milliseconds
-- returns  1     it was mine, and is free again
--          0     it was not mine
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice: the second run finds nothing that is mine. Late, behind a release or the next attempt,
-- too: hence a new attempt for each time that the lock is asked for from one place in the queue.
local mine = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode')
if not mine[1] or not mine[2] or tonumber(mine[2]) > tonumber(ARGV[2]) then
  return 0
end
local now = clock()
give_up(ARGV[1], 'quorlock:fair', mine[3])
local denied = at_best(function()
  redis.call('ZSCORE', KEYS[2], ARGV[3]) -- before anything is written
  queue(ARGV[3], now, tonumber(ARGV[4]))
  local head = next_waiter(now)
  if head and head ~= ARGV[3] then
    call_up(head)
  end
end)
return denied or 1
