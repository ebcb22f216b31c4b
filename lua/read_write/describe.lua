-- read_write/describe: what shared/any_holder and the scripts that use it know of read-write locks.
-- Uses shared/entries.
--
-- KEYS[2], KEYS[3], KEYS[4]  see shared/entries; only if the caller asks about a read-write lock

-- Returns whether the caller asks about a read-write lock.
local function is_asked()
  return string.sub(KEYS[2] or '', 1, 17) == 'quorlock:writers:'
end

return {
  name = 'read_write',
  type = 'hash',
  describe = function(key)
    local entries = all_entries(key, 0)
    if not entries then
      return nil
    end
    -- TIME is called only now, so locks of other kinds are described without the right to it.
    local now, holders = clock(), {}
    for _, entry in ipairs(entries) do
      if is_alive(entry, now) then
        table.insert(holders, {
          by = entry.owner,
          shown = (string.gsub(entry.owner, '\n', ' ')),
          depth = entry.depth,
          left = entry.ends - now,
          is_shared = not entry.is_writer,
        })
      end
    end
    return holders
  end,
  remove = function(key, owner)
    local writer = to_entry(WRITER, redis.call('HMGET', key, WRITER)[1])
    if writer and writer.owner == owner then
      redis.call('HDEL', key, WRITER)
    end
    redis.call('HDEL', key, READER .. owner)
    delete_if_free(key)
  end,
  waiters = function()
    local tickets = {}
    for at = 2, 4, 2 do
      local is_queue = is_asked() and redis.call('TYPE', KEYS[at])['ok'] == 'zset'
      for _, ticket in ipairs(is_queue and redis.call('ZRANGE', KEYS[at], 0, 999) or {}) do
        table.insert(tickets, ticket)
      end
    end
    table.sort(tickets)
    for at = #tickets, 1001, -1 do
      tickets[at] = nil
    end
    return tickets
  end,
  -- Notifies the next waiters, whatever kind of lock was broken.
  on_break = function()
    if is_asked() then
      best_effort(function()
        call_next((clock()))
      end)
    end
  end,
}
