-- fair/describe: what shared/any_holder and the scripts that use it know of fair locks. Uses
-- shared/queue.
--
-- KEYS[2]  the queue; only if the caller asks about a fair lock
-- KEYS[3]  the deadlines; only if the caller breaks a fair lock

-- Returns whether the caller asks about a fair lock.
local function is_asked()
  return string.sub(KEYS[2] or '', 1, 15) == 'quorlock:queue:'
end

return {
  name = 'fair',
  type = 'hash',
  describe = function(key)
    return describe_owner(key, 'quorlock:fair')
  end,
  remove = remove_key,
  waiters = function()
    local is_queue = is_asked() and redis.call('TYPE', KEYS[2])['ok'] == 'zset'
    return is_queue and redis.call('ZRANGE', KEYS[2], 0, 999) or {}
  end,
  -- Notifies the next waiter, whatever kind of lock was broken.
  on_break = function()
    if is_asked() then
      best_effort(function()
        local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1] and next_waiter(KEYS[2], (clock()))
        if head then
          notify(head)
        end
      end)
    end
  end,
}
