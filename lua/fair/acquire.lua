-- fair/acquire: takes the lock on this master for an owner, if the lock is free and no waiter comes
-- first. Otherwise queues the owner.
--
-- KEYS[1]  the lock: a hash, owner -> depth, 'quorlock:fair' -> attempt, and 'mode' -> 'quorlock'
-- KEYS[2]  the queue: a sorted set of tickets
-- KEYS[3]  the deadlines: a sorted set, ticket -> when its waiter counts as dead, in ms of this
--          master's clock
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger than that of any earlier attempt of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  ticket
-- ARGV[6]  silent-waiter timeout: how long to stay queued without asking again, in milliseconds; 0: do not
--          queue
-- ARGV[7]  the largest distance between the time in a ticket that is new here and this master's
--          time, in microseconds; 0: any distance. Left out with ARGV[6] if both are 0 and the lock
--          is not fenced
-- KEYS[4], ARGV[8], ARGV[9]  for a fenced lock: the counter, the caller's candidate and its
--          window: see shared/ballot
-- returns  1     granted at the given depth; the key lives for at least ttl
--          text  'held ..', 'kind': another holds it, see shared/holder
--                'queued POSITION': it is free, and others come first; POSITION is 0 for a caller
--                that is not queued
--                'skew MICROS': not queued, because the ticket's time is outside the window; MICROS
--                is this master's clock
--                'stale ..', 'skew ..': the candidate is refused, see shared/ballot
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- The five steps are Redisson's: sweep dead waiters, grant, re-entry, already queued, enqueue. Safe
-- to run twice: the second run of a grant is a re-entry to the same depth, and a ticket is queued
-- once. Safe to run late for the same reason as reentrant/acquire. If a late run queues a waiter
-- that has left, its ticket is swept after its deadline.

-- The common case: there is no holder and no waiter.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local refused = KEYS[4] and ballot(KEYS[4], ARGV[8], ARGV[9], false)
  return refused or store_lock(true, ARGV[1], ARGV[3], 'quorlock:fair', ARGV[2], ARGV[4])
end

local stored = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:fair', 'mode')
local is_free = not stored[1] and redis.call('EXISTS', KEYS[1]) == 0
local silent_waiter_timeout = tonumber(ARGV[6] or 0)
local now, micros = clock()
local head, is_swept = next_waiter(KEYS[2], now)

local function grant()
  local refused = KEYS[4] and ballot(KEYS[4], ARGV[8], ARGV[9], stored[2] == ARGV[2])
  if refused then
    return refused
  end
  if head then
    redis.call('ZREM', KEYS[2], ARGV[5])
    redis.call('ZREM', KEYS[3], ARGV[5])
  end
  return store_lock(is_free, ARGV[1], ARGV[3], 'quorlock:fair', ARGV[2], ARGV[4])
end

if stored[1] and stored[2] and tonumber(stored[2]) <= tonumber(ARGV[2])
    and is_unaltered(stored[3]) then
  return grant()
end
if is_free and (not head or head == ARGV[5]) then
  return grant()
end
if not is_free then
  local holder = describe_holder(KEYS[1], 'quorlock:fair', 0)
  if holder == 'kind' then
    return holder
  end
end

-- If the lock is free and dead waiters were removed, notifies the first waiter.
local function call_next()
  if is_free and is_swept then
    notify(head)
  end
end

local position = 0
if silent_waiter_timeout > 0 then
  local window = tonumber(ARGV[7])
  if window > 0 and not redis.call('ZSCORE', KEYS[2], ARGV[5])
      and math.abs(tonumber(string.sub(ARGV[5], 1, 16)) - micros) > window then
    call_next()
    return string.format('skew %.0f', micros)
  end
  enqueue(KEYS[2], ARGV[5], now, silent_waiter_timeout)
  head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if is_free and head == ARGV[5] then
    return grant()
  end
  position = redis.call('ZRANK', KEYS[2], ARGV[5]) + 1
end
if is_free then
  call_next()
  return string.format('queued %.0f', position)
end
return describe_holder(KEYS[1], 'quorlock:fair', position)
