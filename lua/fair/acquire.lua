-- fair/acquire: take the lock on this master for an owner if it is free and its turn has come, and queue it if not.
--
-- KEYS[1]  the lock: a hash, owner -> depth, 'quorlock:fair' -> attempt, and 'mode' -> 'quorlock'
-- KEYS[2]  the queue: a sorted set of tickets
-- KEYS[3]  the deadlines: a sorted set, ticket -> when it counts as dead, in ms of this master's clock
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger for every new one of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  ticket
-- ARGV[6]  for how long to be queued without another call, in milliseconds; 0: not to be queued
-- ARGV[7]  how far the time in a ticket that is new here may be from this master's, in microseconds; 0: any
-- KEYS[4], ARGV[8], ARGV[9]  of a fenced lock: the counter, my candidate, how far it may be off: see shared/ballot
-- returns  1     it is mine, as deep as asked, and lives for at least ttl
--          text  'held ..', 'kind': somebody else holds it, see shared/held
--                'queued PLACE': it is free, and others come first; PLACE is 0 for who is not in the queue
--                'skew MICROS': not queued, as the ticket is off; this master's clock
--                'stale ..', 'skew ..': the candidate cannot win, see shared/ballot
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Redisson's five steps: sweep dead waiters, grant, re-entry, already queued, enqueue. Safe to run twice: a grant
-- is a re-entry the second time, to the same depth, and a ticket is queued once. Safe to run late: as
-- reentrant/acquire; a waiter queued for nobody counts as dead when its time is over.

-- As it is most of the time: nobody holds it and nobody waits.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local refused = KEYS[4] and ballot(KEYS[4], ARGV[8], ARGV[9], false)
  return refused or hold(true, ARGV[1], ARGV[3], 'quorlock:fair', ARGV[2], ARGV[4])
end

local mine = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode')
local is_free = not mine[1] and redis.call('EXISTS', KEYS[1]) == 0
local patience = tonumber(ARGV[6])
local now, micros = clock()
local head, is_swept = next_waiter(now)

local function grant()
  local refused = KEYS[4] and ballot(KEYS[4], ARGV[8], ARGV[9], mine[2] == ARGV[2])
  if refused then
    return refused
  end
  if head then
    redis.call('ZREM', KEYS[2], ARGV[5])
    redis.call('ZREM', KEYS[3], ARGV[5])
  end
  return hold(is_free, ARGV[1], ARGV[3], 'quorlock:fair', ARGV[2], ARGV[4])
end

if mine[1] and mine[2] and tonumber(mine[2]) <= tonumber(ARGV[2]) and is_mine_alone(mine[3]) then
  return grant()
end
if is_free and (not head or head == ARGV[5]) then
  return grant()
end
if not is_free then
  local others = held(KEYS[1], 'quorlock:fair', 0)
  if others == 'kind' then
    return others
  end
end

local place = 0
if patience > 0 then
  local window = tonumber(ARGV[7])
  if window > 0 and not redis.call('ZSCORE', KEYS[2], ARGV[5])
      and math.abs(tonumber(string.sub(ARGV[5], 1, 16)) - micros) > window then
    return string.format('skew %.0f', micros)
  end
  queue(ARGV[5], now, patience)
  head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if is_free and head == ARGV[5] then
    return grant()
  end
  place = redis.call('ZRANK', KEYS[2], ARGV[5]) + 1
end
if is_free then
  if is_swept then
    call_up(head)
  end
  return string.format('queued %.0f', place)
end
return held(KEYS[1], 'quorlock:fair', place)
