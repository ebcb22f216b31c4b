-- semaphore/acquire: takes a slot on this master, if fewer than `permits` are held and the waiters
-- before the caller leave one. Otherwise queues the caller. Also restores what this master lost,
-- regardless of the waiters.
--
-- KEYS[1]..KEYS[3]  see shared/permits
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger than that of any earlier attempt of this owner
-- ARGV[3]  ttl in milliseconds
-- ARGV[4]  permits: the number of slots, as the caller knows it
-- ARGV[5]  the slot that another master has granted to this attempt; 0: any
-- ARGV[6]  ticket
-- ARGV[7]  silent-waiter timeout, as for fair/acquire; -1: restore what this master lost
-- ARGV[8]  window of the ticket, as for fair/acquire
-- KEYS[4], ARGV[9], ARGV[10]  for a fenced lock: the counter, the caller's candidate and its
--          window: see shared/ballot
-- returns  n >= 1  the caller has slot n, for at least ttl
--          text    'held ..', 'kind': see shared/permits
--                  'queued POSITION', 'skew MICROS', 'stale ..': as for fair/acquire
--          error   WRONGTYPE: a lock of another kind is held under this name
--
-- A slot belongs to the owner to which a majority has granted it. So the caller counts the grants
-- of one slot only, and one attempt asks for one slot: after a failed round, the next round is a
-- new attempt.
--
-- The waiter at place p of the queue, from 0, gets the free slot after p other free ones. So
-- masters that know the same holders and waiters grant it the same slot. A waiter that asks without
-- a silent-waiter timeout asks this master, as the agreed one, to choose for all masters. The search
-- begins at a slot that depends on ticket and attempt, as for a caller without timeout that finds
-- no waiters. This slot changes with every second attempt, because the agreed master may lack a
-- holder, and chooses only that often.
--
-- A waiter whose candidate is refused stays in the queue, so that later clients do not pass it.
--
-- Safe to run twice: the second run finds the caller's entry, or refuses its candidate. Safe to run
-- late: a later attempt of the same owner is in the way of an earlier one.
local attempt, most, wanted = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ticket, silent_waiter_timeout = ARGV[6], tonumber(ARGV[7] or 0)
local now, micros = clock()
local mine, is_lock, earliest = own_permit(ARGV[1])
if not is_lock then
  return 'kind'
end
-- The number of entries that were removed.
local removed = 0

local function remove(permit)
  remove_permit(KEYS[1], permit)
  removed = removed + 1
end

if earliest and earliest < now then
  removed, earliest = sweep_permits(KEYS[1], now)
  if not removed then
    return 'kind'
  end
  mine = mine and mine.ends >= now and mine
end
-- A waiter that was granted a slot in an earlier round has left the queue, but its ticket counts.
local was_granted = mine and mine.attempt < attempt
if was_granted then
  remove(mine)
  mine = nil
end
local used = math.max(redis.call('HLEN', KEYS[1]) - 2, 0) / 2

-- Returns whether the caller was in the queue.
local function leave_queue()
  return redis.call('ZREM', KEYS[2], ticket) == 1 and redis.call('ZREM', KEYS[3], ticket)
end

-- Returns the free slot after `skip` other free ones, from slot `from` + 1 on.
local function free_slot(from, skip)
  for first = 0, most - 1, 64 do
    local names = {}
    for at = first, math.min(first + 63, most - 1) do
      names[#names + 1] = string.format('%s%.0f', SLOT, 1 + (from + at) % most)
    end
    local stored = redis.call('HMGET', KEYS[1], unpack(names))
    for at = 1, #names do
      if not stored[at] and skip == 0 then
        return string.sub(names[at], #SLOT + 1)
      end
      skip = stored[at] and skip or skip - 1
    end
  end
end

-- Queues the caller. Returns false if the time in a ticket that is new here is outside the window.
local function join()
  local window = tonumber(ARGV[8])
  -- ZSCORE also throws on a wrong type before anything is written.
  if not redis.call('ZSCORE', KEYS[2], ticket) and window > 0
      and math.abs(tonumber(string.sub(ticket, 1, 16)) - micros) > window then
    return false
  end
  enqueue(KEYS[2], ticket, now, silent_waiter_timeout)
  return true
end

local function grant(slot)
  -- A candidate that equals the counter may be another caller's, even if the caller has an entry.
  local refused = KEYS[4] and ballot(KEYS[4], ARGV[9], ARGV[10], false)
  if refused then
    if not mine and silent_waiter_timeout > 0 and type(refused) == 'string' then
      join()
    end
    return refused
  end
  local ends = now + tonumber(ARGV[3])
  if mine then
    ends = math.max(ends, mine.ends)
    if mine.slot ~= slot then
      remove_permit(KEYS[1], mine)
    end
  end
  local permit = { owner = ARGV[1], attempt = ARGV[2], slot = slot }
  local reply = store_permit(permit, ends, now)
  if reply ~= 1 then
    return reply
  end
  used = used + (mine and 0 or 1)
  local denied = best_effort(function()
    local is_served = leave_queue()
    -- A release notifies one waiter. If permits are free even after this grant, the next waiter is
    -- notified here.
    call_waiters(now, (is_served or removed > 0) and used < most and 1 or 0)
  end)
  return denied or tonumber(slot)
end

-- If entries or dead waiters were removed, notifies the waiters whose turn has come.
local function call_others(is_swept)
  call_waiters(now, math.min(math.max(removed, is_swept and 1 or 0), most - used), ticket)
end

if mine and mine.attempt == attempt and (wanted == 0 or mine.slot == ARGV[5]) then
  return grant(mine.slot)
elseif mine and mine.attempt > attempt then
  return describe_permits(now, earliest, 0)
elseif wanted > 0 then
  if not redis.call('HMGET', KEYS[1], SLOT .. ARGV[5])[1] then
    return grant(ARGV[5])
  end
  if mine then
    -- Another slot is of no use: the caller has the wanted one on a majority of masters.
    remove(mine)
    used = used - 1
  end
  local denied = best_effort(function()
    -- A holder waits no more. Its ticket would be in the way of others.
    call_others(silent_waiter_timeout == -1 and leave_queue())
  end)
  return denied or describe_permits(now, earliest, 0)
end

local head, is_swept = next_waiter(KEYS[2], now)
local from = (tonumber(string.sub(ticket, 1, 16)) + 7919 * math.floor(attempt / 2)) % most
local place, slot = 0, nil
if not head and used < most then
  slot = free_slot(silent_waiter_timeout > 0 and 0 or from, 0)
elseif silent_waiter_timeout > 0 then
  if not join() then
    call_others(is_swept)
    return string.format('skew %.0f', micros)
  end
  place = redis.call('ZLEXCOUNT', KEYS[2], '-', '(' .. ticket)
  slot = place < most - used and free_slot(0, place)
elseif head and (was_granted or redis.call('ZSCORE', KEYS[2], ticket)) then
  place = redis.call('ZLEXCOUNT', KEYS[2], '-', '(' .. ticket)
  slot = place < most - used and free_slot(from, 0)
elseif head then
  place = redis.call('ZLEXCOUNT', KEYS[2], '-', '(:') -- all tickets, which begin with a digit
  slot = place < most - used and free_slot(0, place)
end
if slot then
  return grant(slot)
end
call_others(is_swept)
local position = silent_waiter_timeout > 0 and place + 1 or 0
if used < most then
  return string.format('queued %.0f', position)
end
return describe_permits(now, earliest, position)
