-- shared/permits: the holders of a semaphore. Prepended to the scripts that use it, after
-- shared/queue.
--
-- KEYS[1]  the lock: a hash
--            'mode'          -> 'quorlock', which keeps Redisson's read-write lock away
--            SEMAPHORE       -> a time before which no lease ends
--            PERMIT .. owner -> 'ATTEMPT END SLOT', for each holder
--            SLOT .. slot    -> the owner in this slot; slots are numbered from 1
--          END is the last millisecond of the holder's lease, by this master's clock. After it, the
--          entry counts as gone. The key lives at least until the last END.
-- KEYS[2]  the queue of tickets
-- KEYS[3]  their deadlines
local SEMAPHORE, PERMIT, SLOT = 'quorlock:semaphore', 'quorlock:permit:', 'quorlock:slot:'

-- Returns the entry of an owner; nil if `value` is no entry.
local function to_permit(owner, value)
  local attempt, ends, slot = string.match(value or '', '^(%d+) (%d+) (%d+)$')
  return attempt and {
    owner = owner,
    attempt = tonumber(attempt),
    ends = tonumber(ends),
    slot = slot,
  }
end

-- Returns all entries, sorted by owner, also those whose leases have ended. Returns nil if the hash
-- is no semaphore.
local function all_permits(key)
  local fields = redis.call('HGETALL', key)
  local permits, is_marked, has_mode = {}, false, false
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if string.sub(field, 1, #PERMIT) == PERMIT then
      local permit = to_permit(string.sub(field, #PERMIT + 1), value)
      if not permit then
        return nil
      end
      permits[#permits + 1] = permit
    elseif field == SEMAPHORE then
      is_marked = true
    elseif field == 'mode' and value == 'quorlock' then
      has_mode = true
    elseif string.sub(field, 1, #SLOT) ~= SLOT then
      return nil
    end
  end
  table.sort(permits, function(one, other)
    return one.owner < other.owner
  end)
  return is_marked and has_mode and permits or nil
end

-- Returns the entry of the owner. Its lease may have ended. Also returns whether the lock is a
-- semaphore or free, and the time before which no lease ends. Reads no other fields, because there
-- may be many holders.
local function own_permit(owner)
  local stored = redis.call('HMGET', KEYS[1], 'mode', SEMAPHORE, PERMIT .. owner)
  local earliest = tonumber(stored[2] or '')
  local is_lock = stored[1] == 'quorlock' and earliest or redis.call('EXISTS', KEYS[1]) == 0
  return to_permit(owner, stored[3]), is_lock, earliest
end

-- Removes an entry. Deletes the lock with its last entry.
local function remove_permit(key, permit)
  redis.call('HDEL', key, PERMIT .. permit.owner)
  if redis.call('HMGET', key, SLOT .. permit.slot)[1] == permit.owner then
    redis.call('HDEL', key, SLOT .. permit.slot)
  end
  if redis.call('HLEN', key) == 2 then
    redis.call('DEL', key)
  end
end

-- Removes the entries whose leases have ended. Returns their number, and the time before which no
-- other lease ends. Returns nil if the hash is no semaphore.
local function sweep_permits(key, now)
  local permits, count, earliest = all_permits(key), 0, nil
  if not permits then
    return nil
  end
  for _, permit in ipairs(permits) do
    if permit.ends < now then
      remove_permit(key, permit)
      count = count + 1
    else
      earliest = math.min(earliest or permit.ends, permit.ends)
    end
  end
  if earliest then
    -- A master that is out of memory refuses this write. Then the next command sweeps again.
    redis.pcall('HSET', key, SEMAPHORE, string.format('%.0f', earliest))
  end
  return count, earliest
end

-- Writes an entry that lives until `ends`. The key lives at least as long.
--
-- returns  1      the entry is there
--          error  the TTL could not be set. The entry was removed, because without a TTL the lock
--                 would never end
local function store_permit(permit, ends, now)
  -- If a right is missing, no part of a lock may stay behind. So all reads come first, and a single
  -- command writes.
  local earliest, left = redis.call('HMGET', KEYS[1], SEMAPHORE)[1], redis.call('PTTL', KEYS[1])
  earliest = math.min(tonumber(earliest or '') or ends, ends)
  local value = string.format('%s %.0f %s', permit.attempt, ends, permit.slot)
  redis.call('HSET', KEYS[1], 'mode', 'quorlock', SEMAPHORE, string.format('%.0f', earliest),
    PERMIT .. permit.owner, value, SLOT .. permit.slot, permit.owner)
  if left >= ends - now then
    return 1
  end
  local set = redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', ends - now))
  if type(set) == 'table' then
    remove_permit(KEYS[1], permit)
    return set
  end
  return 1
end

-- Describes the holders, as shared/holder does. Names those in the first five slots, each on a line
-- of its own. No lease ends within LEFT.
local function describe_permits(now, earliest, position)
  local slots, owners = {}, {}
  for slot = 1, 5 do
    slots[slot] = SLOT .. slot
  end
  local stored = redis.call('HMGET', KEYS[1], unpack(slots))
  for slot = 1, 5 do
    owners[#owners + 1] = stored[slot] or nil
  end
  local left = math.max((earliest or now) - now, 1)
  return string.format('held %.0f 1 %.0f ', left, position) .. table.concat(owners, '\n')
end

-- Notifies the first `count` waiters, but not the one with the ticket `caller`.
local function call_waiters(now, count, caller)
  if count > 0 and next_waiter(KEYS[2], now) then
    for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, count - 1)) do
      if ticket ~= caller then
        notify(ticket)
      end
    end
  end
end

