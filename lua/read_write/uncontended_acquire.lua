-- read_write/uncontended_acquire: the common case of read_write/acquire, before its parts are even
-- defined, because that takes as long as all the rest. There is no holder and no waiter; or readers
-- hold the lock, no writer waits, and the caller reads.
if ARGV[7] == '0' and not KEYS[5] then
  local is_writer = ARGV[5] == 'write'
  local is_new = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) == 0
  local field = is_writer and 'quorlock:writer' or 'quorlock:reader:' .. ARGV[1]
  local is_shared = false
  if not is_new and not is_writer and redis.call('EXISTS', KEYS[2]) == 0 then
    local stored = redis.call('HMGET', KEYS[1], 'mode', 'quorlock:read_write', 'quorlock:writer',
      field)
    is_shared = stored[1] == 'quorlock' and stored[2] and not stored[3] and not stored[4]
      and redis.call('HLEN', KEYS[1]) <= 2 * (tonumber(stored[2]) or 0) + 64
  end
  if is_new or is_shared then
    local time, ttl = redis.call('TIME'), tonumber(ARGV[4])
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    local entry = string.format('%s %s %.0f', ARGV[2], ARGV[3], now + ttl)
    if is_new then
      redis.call('HSET', KEYS[1], field, is_writer and entry .. ' ' .. ARGV[1] or entry, 'mode',
        'quorlock', 'quorlock:read_write', 3)
    else
      redis.call('HSET', KEYS[1], field, entry)
    end
    if is_new or redis.call('PTTL', KEYS[1]) < ttl then
      local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
      if type(set) == 'table' then
        redis.call(is_new and 'DEL' or 'HDEL', KEYS[1], is_new and KEYS[1] or field)
        return set
      end
    end
    return 1
  end
end
