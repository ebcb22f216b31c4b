-- semaphore/uncontended_acquire: the common case of semaphore/acquire, before its parts are even
-- defined, because that takes as long as all the rest. No one waits, no lease has ended, and the
-- slot where the search begins is free.
if ARGV[8] == '0' and ARGV[6] == '0' and not KEYS[4] then
  local is_new = redis.call('EXISTS', KEYS[1], KEYS[2]) == 0
  local most, earliest = tonumber(ARGV[5]), nil
  local from = (tonumber(string.sub(ARGV[7], 1, 16)) + 7919 * (tonumber(ARGV[2]) - 1)) % most
  local slot = string.format('%.0f', 1 + from)
  local permit, place = 'quorlock:permit:' .. ARGV[1], 'quorlock:slot:' .. slot
  if not is_new and redis.call('EXISTS', KEYS[2]) == 0 then
    local stored = redis.call('HMGET', KEYS[1], 'mode', 'quorlock:semaphore', permit, place)
    local is_shared = stored[1] == 'quorlock' and not stored[3] and not stored[4]
      and redis.call('HLEN', KEYS[1]) < 2 * most + 2
    earliest = is_shared and tonumber(stored[2] or '')
  end
  if is_new or earliest then
    local time, ttl = redis.call('TIME'), tonumber(ARGV[4])
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    if is_new or earliest >= now then
      local left = is_new and -2 or redis.call('PTTL', KEYS[1])
      local first = string.format('%.0f', math.min(earliest or now + ttl, now + ttl))
      local entry = string.format('%s %s %.0f %s', ARGV[2], ARGV[3], now + ttl, slot)
      redis.call('HSET', KEYS[1], 'mode', 'quorlock', 'quorlock:semaphore', first, permit, entry,
        place, ARGV[1])
      local set = left < ttl and redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
      if type(set) == 'table' then
        if is_new then
          redis.call('DEL', KEYS[1])
        else
          redis.call('HDEL', KEYS[1], permit, place)
        end
        return set
      end
      return tonumber(slot)
    end
  end
end
