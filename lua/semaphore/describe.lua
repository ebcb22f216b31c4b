-- semaphore/describe: what shared/any_holder and the scripts that use it know of semaphores. Uses
-- shared/permits.
--
-- KEYS[2], KEYS[3]  see shared/permits; only if the caller asks about a semaphore

-- Returns whether the caller asks about a semaphore.
local function is_asked()
  return string.sub(KEYS[2] or '', 1, 17) == 'quorlock:waiters:'
end

return {
  name = 'semaphore',
  type = 'hash',
  describe = function(key)
    local permits = all_permits(key)
    if not permits then
      return nil
    end
    -- TIME is called only now, so locks of other kinds are described without the right to it.
    local now, holders = clock(), {}
    for _, permit in ipairs(permits) do
      if permit.ends >= now then
        table.insert(holders, {
          by = permit.owner,
          shown = (string.gsub(permit.owner, '\n', ' ')),
          depth = '1',
          left = permit.ends - now,
          is_shared = true,
        })
      end
    end
    return holders
  end,
  remove = function(key, owner)
    local permit = to_permit(owner, redis.call('HMGET', key, PERMIT .. owner)[1])
    if permit then
      remove_permit(key, permit)
    end
  end,
  waiters = function()
    local is_queue = is_asked() and redis.call('TYPE', KEYS[2])['ok'] == 'zset'
    return is_queue and redis.call('ZRANGE', KEYS[2], 0, 999) or {}
  end,
  -- Notifies the next waiter, whatever kind of lock was broken.
  on_break = function()
    if is_asked() then
      best_effort(function()
        call_waiters((clock()), 1)
      end)
    end
  end,
}
