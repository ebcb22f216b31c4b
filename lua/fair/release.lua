-- fair/release: give up the lock or the wait for it on this master, and call up who is next.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines
-- ARGV[1]  owner
-- ARGV[2]  attempt: it and those before it are given up
-- ARGV[3]  ticket
-- returns  1     it was mine and is gone
--          0     nothing is held here
--          text  somebody else holds it: see shared/held
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: an attempt is given up once, and a ticket that is not there is not removed.
local mine = redis.pcall('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode') -- an error when it is no lock of ours
local is_mine = not mine.err and mine[1] and mine[2] and tonumber(mine[2]) <= tonumber(ARGV[2])
if is_mine then
  -- First, as whatever is under the other keys must not keep anybody from releasing.
  give_up(ARGV[1], 'quorlock:fair', mine[3])
end
local head, was_next
local denied = at_best(function()
  head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  was_next = head == ARGV[3]
  if head and redis.call('ZREM', KEYS[2], ARGV[3]) == 1 then
    redis.call('ZREM', KEYS[3], ARGV[3])
  end
end)
if denied then
  return denied
end
if mine.err then
  return redis.call('HMGET', KEYS[1], ARGV[1]) -- which is that error, for all to see
end
if not is_mine and redis.call('EXISTS', KEYS[1]) == 1 then
  return held(KEYS[1], 'quorlock:fair', 0)
end
if head and (is_mine or was_next) then
  local now = clock()
  denied = at_best(function()
    head = next_waiter(now)
    if head then
      call_up(head)
    end
  end)
end
return denied or (is_mine and 1 or 0)
