-- semaphore/uncontended_acquire: the common case of semaphore/acquire: no one waits, no lease has
-- ended, and the slot where the search begins is free. The caller does not wait, and has no
-- candidate for a fencing token. Runs before the functions of semaphore/acquire are defined, which
-- takes as long as all the rest.
if not ARGV[7] and ARGV[5] == '0' then
  local call, key, ttl, most = redis.call, KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
  local is_new, earliest = call('EXISTS', key, KEYS[2]) == 0, nil
  local slot = 1 + (string.sub(ARGV[6], 1, 16) + 7919 * math.floor(ARGV[2] / 2)) % most
  local permit, place = 'quorlock:permit:' .. ARGV[1], 'quorlock:slot:' .. slot
  if not is_new and call('EXISTS', KEYS[2]) == 0 then
    local stored = call('HMGET', key, 'mode', 'quorlock:semaphore', permit, place)
    local is_shared = stored[1] == 'quorlock' and not stored[3] and not stored[4]
      and call('HLEN', key) < 2 * most + 2
    earliest = is_shared and tonumber(stored[2] or '')
  end
  if is_new or earliest then
    local time = call('TIME')
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    if is_new or earliest >= now then
      local left, ends = is_new and -2 or call('PTTL', key), now + ttl
      local first = earliest and math.min(earliest, ends) or ends
      -- Lua writes a whole number with all its digits here, because it is below 10^14.
      local entry = ARGV[2] .. ' ' .. ends .. ' ' .. slot
      call('HSET', key, 'mode', 'quorlock', 'quorlock:semaphore', first .. '', permit, entry, place,
        ARGV[1])
      local set = left < ttl and redis.pcall('PEXPIRE', key, ARGV[3])
      if type(set) == 'table' then
        if is_new then
          call('DEL', key)
        else
          call('HDEL', key, permit, place)
        end
        return set
      end
      return slot
    end
  end
end
