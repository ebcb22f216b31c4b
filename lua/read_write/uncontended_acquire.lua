-- read_write/uncontended_acquire: the common case of read_write/acquire: there is no holder and no
-- waiter; or readers hold the lock, no writer waits, and the caller reads. The caller does not
-- wait, and has no candidate for a fencing token. Runs before the functions of read_write/acquire
-- are defined, which takes as long as all the rest.
if not ARGV[7] then
  local call, key, ttl = redis.call, KEYS[1], tonumber(ARGV[4])
  local is_writer = ARGV[5] == 'write'
  local is_new = call('EXISTS', key, KEYS[2], KEYS[4]) == 0
  local field = is_writer and 'quorlock:writer' or 'quorlock:reader:' .. ARGV[1]
  local is_shared = false
  if not is_new and not is_writer and call('EXISTS', KEYS[2]) == 0 then
    local stored = call('HMGET', key, 'mode', 'quorlock:read_write', 'quorlock:writer', field)
    is_shared = stored[1] == 'quorlock' and stored[2] and not stored[3] and not stored[4]
      and call('HLEN', key) <= 2 * (tonumber(stored[2]) or 0) + 64
  end
  if is_new or is_shared then
    local time = call('TIME')
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    -- Lua writes a whole number with all its digits here, because it is below 10^14.
    local entry = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. now + ttl
    if is_new then
      call('HSET', key, field, is_writer and entry .. ' ' .. ARGV[1] or entry, 'mode', 'quorlock',
        'quorlock:read_write', '3')
    else
      call('HSET', key, field, entry)
    end
    if is_new or call('PTTL', key) < ttl then
      local set = redis.pcall('PEXPIRE', key, ARGV[4])
      if type(set) == 'table' then
        call(is_new and 'DEL' or 'HDEL', key, is_new and key or field)
        return set
      end
    end
    return 1
  end
end
