-- read_write/release: removes the caller's entry on this master, or ends its wait, and notifies the
-- waiters whose turn has come.
--
-- KEYS[1]..KEYS[4]  see shared/entries
-- ARGV[1]  owner
-- ARGV[2]  attempt: this attempt and earlier ones are released
-- ARGV[3]  'read' or 'write': what the caller held or waited for
-- ARGV[4]  ticket
-- returns  1     the caller had an entry, and it is gone
--          0     the caller has no entry, and no one is in its way
--          text  others are in its way, or the lock is of another kind: see shared/entries
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- Safe to run twice or late: an attempt is released once, and removing a missing ticket does
-- nothing.
local is_writer = ARGV[3] == 'write'
local now = clock()
-- The key may be of another type. The ticket must be removed all the same.
local is_hash, entries, is_lock = pcall(few_entries, ARGV[1])
-- The entry is removed first. The contents of the other keys must not prevent that.
local is_mine, frees_readers = false, false
if is_hash then
  is_mine, frees_readers = remove_attempt(entries, ARGV[1], ARGV[2])
end
local is_next = is_mine

-- Removes the ticket from a queue.
local function leave(queue)
  if redis.call('ZREM', queue, ARGV[4]) == 1 then
    is_next, frees_readers = true, frees_readers or queue == KEYS[2]
    redis.call('ZREM', KEYS[3], ARGV[4])
  end
end
local was_first = false
local denied = best_effort(function()
  local writer = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local reader = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
  was_first = ARGV[4] == (writer and reader and (writer < reader and writer or reader) or writer
    or reader)
end)
-- A writer that became a reader has queued as a writer, so the ticket may be in either queue.
denied = best_effort(function()
  leave(KEYS[2])
end) or denied
denied = best_effort(function()
  leave(KEYS[4])
end) or denied
denied = denied or is_hash and is_next and best_effort(function()
  call_next(now, nil, not frees_readers, was_first)
end)
if denied then
  return denied
end
if not is_hash then
  return to_error_reply(entries)
end
if is_mine then
  return 1
end
if not is_lock then
  return 'kind'
end
local others = {}
for _, entry in ipairs(is_writer and all_entries(KEYS[1], now) or entries) do
  if is_alive(entry, now) and (is_writer or entry.is_writer) then
    table.insert(others, entry)
  end
end
return #others > 0 and describe_entries(others, now, 0) or 0
