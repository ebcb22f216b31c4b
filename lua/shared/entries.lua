-- shared/entries: the holders of a read-write lock. Prepended to the scripts that use it, after
-- shared/queue.
--
-- KEYS[1]  the lock: a hash
--            'mode'           -> 'quorlock', which keeps Redisson's read-write lock away
--            READ_WRITE       -> the number of fields when dead readers were last removed
--            WRITER           -> 'ATTEMPT DEPTH END OWNER'
--            READER .. owner  -> 'ATTEMPT DEPTH END', for each reader
--          END is the last millisecond of the holder's lease, by this master's clock. After it, the
--          entry counts as gone. The key lives at least until the last END.
-- KEYS[2]  the queue of the tickets of writers
-- KEYS[3]  the deadlines of all tickets
-- KEYS[4]  the queue of the tickets of readers
local READ_WRITE, WRITER, READER = 'quorlock:read_write', 'quorlock:writer', 'quorlock:reader:'

-- Returns the entry in a field of the hash; nil if there is none.
local function to_entry(field, value)
  local is_writer = field == WRITER
  if not value or not (is_writer or string.sub(field, 1, #READER) == READER) then
    return nil
  end
  local attempt, depth, ends, owner = string.match(value, '^(%d+) (%d+) (%d+) ?(.*)$')
  return attempt and {
    field = field,
    is_writer = is_writer,
    owner = is_writer and owner or string.sub(field, #READER + 1),
    attempt = tonumber(attempt),
    depth = depth,
    ends = tonumber(ends),
  }
end

-- Returns whether the lease of an entry has not ended. Like a key, an entry lives until the end of
-- its last millisecond.
local function is_alive(entry, now)
  return entry.ends >= now
end

-- Returns the entries of the holders, sorted by owner, and those whose leases have ended. Returns
-- nil if the hash is no read-write lock.
local function all_entries(key, now)
  local fields = redis.call('HGETALL', key)
  local alive, ended, is_marked, has_mode = {}, {}, false, false
  for at = 1, #fields, 2 do
    local entry = to_entry(fields[at], fields[at + 1])
    if entry then
      table.insert(is_alive(entry, now) and alive or ended, entry)
    elseif fields[at] == READ_WRITE then
      is_marked = true
    elseif fields[at] == 'mode' and fields[at + 1] == 'quorlock' then
      has_mode = true
    else
      return nil
    end
  end
  table.sort(alive, function(one, other)
    return one.owner < other.owner
  end)
  return (#fields == 0 or is_marked and has_mode) and alive or nil, ended
end

-- Returns the entries of the owner and of the writer. Their leases may have ended. Also returns
-- whether the lock is a read-write lock or free. Reads no other fields, because there may be many
-- readers.
local function few_entries(owner)
  local reader = READER .. owner
  local stored = redis.call('HMGET', KEYS[1], 'mode', READ_WRITE, WRITER, reader)
  local writer = to_entry(WRITER, stored[3])
  local entries = { writer }
  table.insert(entries, to_entry(reader, stored[4]))
  local is_lock = stored[1] == 'quorlock' and stored[2] and (writer or not stored[3])
  return entries, is_lock or redis.call('EXISTS', KEYS[1]) == 0
end

-- Writes an entry that lives until `ends`. The key lives at least as long.
--
-- returns  1      the entry is there
--          error  the TTL could not be set. The entry was removed, because without a TTL the lock
--                 would never end
local function store_entry(is_writer, owner, attempt, depth, ends, now)
  local field = is_writer and WRITER or READER .. owner
  local value = string.format('%s %s %.0f', attempt, depth, ends)
  value = is_writer and value .. ' ' .. owner or value
  -- If a right is missing, no part of a lock may stay behind. So all reads come first, and a single
  -- command writes.
  local count, left = redis.call('HMGET', KEYS[1], READ_WRITE)[1], redis.call('PTTL', KEYS[1])
  redis.call('HSET', KEYS[1], 'mode', 'quorlock', READ_WRITE, count or 3, field, value)
  if left >= ends - now then
    return 1
  end
  local set = redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', ends - now))
  if type(set) ~= 'table' then
    return 1
  end
  if redis.call('HLEN', KEYS[1]) == 3 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HDEL', KEYS[1], field)
  end
  return set
end

-- Deletes the lock if it has no entry.
local function delete_if_free(key)
  if redis.call('HLEN', key) == 2 then
    local stored = redis.call('HMGET', key, 'mode', READ_WRITE)
    if stored[1] == 'quorlock' and stored[2] then
      redis.call('DEL', key)
    end
  end
end

-- Removes the owner's entries of this attempt and of earlier ones. Returns whether there was one,
-- and whether the owner was the writer.
local function remove_attempt(entries, owner, attempt)
  local is_removed, was_writer = false, false
  for _, entry in ipairs(entries) do
    if entry.owner == owner and entry.attempt <= tonumber(attempt) then
      redis.call('HDEL', KEYS[1], entry.field)
      is_removed, was_writer = true, was_writer or entry.is_writer
    end
  end
  if is_removed then
    delete_if_free(KEYS[1])
  end
  return is_removed, was_writer
end

-- Describes the holders that are in the way, as shared/holder does. At most five owners are named,
-- each on a line of its own. LEFT is the time until the last lease of all these holders ends.
local function describe_entries(entries, now, position)
  local owners, ends = {}, 0
  for at, entry in ipairs(entries) do
    owners[#owners + 1] = at <= 5 and entry.owner or nil
    ends = math.max(ends, entry.ends)
  end
  local words = string.format('held %.0f %s %.0f ', ends - now, entries[1].depth, position)
  return words .. table.concat(owners, '\n')
end

-- Notifies the waiters whose turn has come: all readers before the first writer, or that writer if
-- no one holds the lock. Leaves out the waiter with the ticket `caller`.
--
-- If `is_first_gone`, the first waiter has left its queue. Then the waiters that come first now are
-- notified even while others hold the lock, so that they find out when it will be free.
--
-- If `is_reader`, only a reader or its ticket is gone. It was in the way of writers only, so no
-- reader is notified. Otherwise readers with minority grants would notify each other for ever.
local function call_next(now, caller, is_reader, is_first_gone)
  local writer = to_entry(WRITER, redis.call('HMGET', KEYS[1], WRITER)[1])
  if writer and is_alive(writer, now) and not is_first_gone then
    return
  end
  local first, reader = next_waiter(KEYS[2], now), next_waiter(KEYS[4], now)
  if reader and not (first and first < reader) then
    for _, ticket in ipairs(is_reader and {} or redis.call('ZRANGE', KEYS[4], 0, 999)) do
      if first and first < ticket then
        break
      end
      if ticket ~= caller then
        notify(ticket)
      end
    end
  elseif first and first ~= caller then
    local entries = all_entries(KEYS[1], now)
    if is_first_gone or entries and #entries == 0 then
      notify(first)
    end
  end
end
