-- read_write/acquire: takes the lock on this master for a reader or a writer, if no holder is in
-- its way and no waiter comes first. Otherwise queues the caller. Also restores what this master
-- lost, regardless of the waiters.
--
-- KEYS[1]..KEYS[4]  see shared/entries
-- ARGV[1]  owner
-- ARGV[2]  attempt: larger than that of any earlier attempt of this owner
-- ARGV[3]  depth, absolute
-- ARGV[4]  ttl in milliseconds
-- ARGV[5]  'read' or 'write'
-- ARGV[6]  ticket
-- ARGV[7]  silent-waiter timeout, as for fair/acquire; -1: restore what this master lost
-- ARGV[8]  window of the ticket, as for fair/acquire
-- KEYS[5], ARGV[9], ARGV[10]  for a fenced lock: the counter, the caller's candidate and its
--          window: see shared/ballot
-- returns  1     granted at the given depth; the entry lives for at least ttl
--          text  'held ..', 'kind': others are in the way, see shared/entries
--                'queued POSITION', 'skew MICROS', 'stale ..': as for fair/acquire. The position
--                of a reader counts the writers before it
--          error WRONGTYPE: a lock of another kind is held under this name
--
-- A writer is in everyone's way, and a reader in the way of writers. A reader waits for the tickets
-- of earlier writers only, and a writer for all earlier tickets. So neither waits for ever: the
-- ticket of a writer holds back later readers.
--
-- Safe to run twice: the second run finds the caller's entry. Safe to run late: a later attempt of
-- the same owner is in the way of an earlier one, and a reader never becomes a writer again in the
-- same attempt.
local is_writer, attempt = ARGV[5] == 'write', tonumber(ARGV[2])
local queue, ticket, silent_waiter_timeout = KEYS[is_writer and 2 or 4], ARGV[6], tonumber(ARGV[7] or 0)
local now, micros = clock()
-- Whether entries were removed, and whether a writer's entry or ticket was removed.
local is_removed, is_writer_removed = false, false
-- The first waiters, and whether dead ones were removed before them.
local first, is_swept, reader, is_reader_swept
-- The end of this attempt's lease here; 0 if it has none.
local own_end = 0

local function remove(entry)
  redis.call('HDEL', KEYS[1], entry.field)
  is_removed, is_writer_removed = true, is_writer_removed or entry.is_writer
end

-- Removes the ticket from both queues, because a writer that became a reader has queued as a
-- writer.
local function leave_queues()
  is_writer_removed = redis.call('ZREM', KEYS[2], ticket) == 1 or is_writer_removed
  redis.call('ZREM', KEYS[4], ticket)
  redis.call('ZREM', KEYS[3], ticket)
end

local function grant(mine)
  local refused = KEYS[5] and ballot(KEYS[5], ARGV[9], ARGV[10], mine ~= nil)
  if refused then
    return refused
  end
  local ends = math.max(now + tonumber(ARGV[4]), own_end)
  local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)
  if reply ~= 1 then
    return reply
  end
  local denied = silent_waiter_timeout ~= 0 and best_effort(leave_queues)
  if not is_writer and (is_writer_removed or is_swept) then
    denied = denied or best_effort(function()
      call_next(now, ticket)
    end)
  end
  return denied or 1
end

-- Removes entries of readers that died, each time that the number of fields has doubled.
local function sweep_readers()
  local fields = redis.call('HLEN', KEYS[1])
  local before = tonumber(redis.call('HMGET', KEYS[1], READ_WRITE)[1] or '') or 0
  if fields > 2 * before + 64 then
    local _, ended = all_entries(KEYS[1], now)
    for _, entry in ipairs(ended or {}) do
      redis.call('HDEL', KEYS[1], entry.field)
    end
    redis.call('HSET', KEYS[1], READ_WRITE, redis.call('HLEN', KEYS[1]))
  end
end

local entries, ended, is_lock
if is_writer then
  entries, ended = all_entries(KEYS[1], now)
  is_lock = entries
else
  entries, is_lock = few_entries(ARGV[1])
end
if not is_lock then
  return 'kind'
end
for _, entry in ipairs(ended or {}) do
  remove(entry)
end
local others, mine = {}, nil
for _, entry in ipairs(entries) do
  local is_mine = entry.owner == ARGV[1]
  local is_same = is_mine and entry.attempt == attempt
  own_end = is_same and math.max(own_end, entry.ends) or own_end
  if not is_alive(entry, now) or is_mine and (entry.attempt < attempt
      or is_same and entry.is_writer and not is_writer) then
    remove(entry)
  elseif is_same and entry.is_writer == is_writer then
    mine = entry
  elseif is_mine or is_writer or entry.is_writer then
    table.insert(others, entry)
  end
end
local is_free = #others == 0
if is_removed then
  delete_if_free(KEYS[1])
end
if not is_writer then
  sweep_readers()
end
if is_free and (mine or silent_waiter_timeout < 0) then
  return grant(mine)
end

first, is_swept = next_waiter(KEYS[2], now)
if is_writer then
  reader, is_reader_swept = next_waiter(KEYS[4], now)
end
if is_free and not first and not reader then
  return grant()
end

-- If entries or dead waiters were removed, notifies other waiters whose turn has come.
local function call_others()
  if is_removed or is_swept or is_reader_swept then
    call_next(now, ticket, not is_writer_removed and not is_swept)
  end
end

local position = 0
if silent_waiter_timeout > 0 then
  local window = tonumber(ARGV[8])
  -- ZSCORE also throws on a wrong type before anything is written.
  if not redis.call('ZSCORE', queue, ticket) and window > 0
      and math.abs(tonumber(string.sub(ticket, 1, 16)) - micros) > window then
    call_others()
    return string.format('skew %.0f', micros)
  end
  enqueue(queue, ticket, now, silent_waiter_timeout)
  position = 1 + redis.call('ZLEXCOUNT', KEYS[2], '-', '(' .. ticket)
  if is_writer then
    position = position + redis.call('ZLEXCOUNT', KEYS[4], '-', '(' .. ticket)
  end
  if is_free and position == 1 then
    return grant()
  end
end
call_others()
if is_free then
  return string.format('queued %.0f', position)
end
return describe_entries(others, now, position)
