-- read_write/extend: makes the caller's entry on this master live for at least ttl from now, and
-- sets its depth. Makes a writer a reader if the caller asks to read. Never makes a reader a
-- writer.
--
-- KEYS[1]..KEYS[4]  see shared/entries
-- ARGV[1]  owner
-- ARGV[2]  attempt
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds; 0: set the depth only
-- ARGV[5]  'read' or 'write'
-- returns  1     the entry is the caller's, and lives for at least ttl
--          0     the caller has no entry here, and no one is in its way
--          text  others are in its way, or the lock is of another kind: see shared/entries
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Never creates an entry, and never shortens a TTL. Safe to run twice or late: it acts only for the
-- attempt that has the entry. Never prolongs an entry whose lease has ended, because others may
-- have been granted the lock since.
local is_writer, attempt = ARGV[5] == 'write', tonumber(ARGV[2])
local now = clock()
local entries, is_lock = few_entries(ARGV[1])
if not is_lock then
  return 'kind'
end
local mine
for _, entry in ipairs(entries) do
  if entry.owner == ARGV[1] and entry.attempt == attempt and is_alive(entry, now)
      and (entry.is_writer or not is_writer) then
    mine = entry
  end
end
if mine then
  local ends = math.max(mine.ends, now + tonumber(ARGV[4]))
  -- A master that is out of memory refuses HSET as the first write, so PEXPIRE comes first. A TTL
  -- of 0 would delete the lock.
  local left = math.max(redis.call('PTTL', KEYS[1]), ends - now, 1)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
  local is_downgrade = mine.is_writer and not is_writer
  if is_downgrade then
    redis.call('HDEL', KEYS[1], mine.field)
  end
  local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)
  if is_downgrade then
    best_effort(function()
      call_next(now)
    end)
  end
  return reply
end
local others = {}
for _, entry in ipairs(is_writer and all_entries(KEYS[1], now) or entries) do
  local is_late = entry.owner == ARGV[1] and entry.attempt > attempt
  local is_other = entry.owner ~= ARGV[1] and (is_writer or entry.is_writer)
  if is_alive(entry, now) and (is_late or is_other) then
    table.insert(others, entry)
  end
end
return #others > 0 and describe_entries(others, now, 0) or 0
