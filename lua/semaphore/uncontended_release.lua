-- semaphore/uncontended_release: the common case of semaphore/release, before its parts are even
-- defined, because that takes as long as all the rest. The caller has an entry, no one waits, and
-- no other lease has ended.
do
  local permit = 'quorlock:permit:' .. ARGV[1]
  local stored = redis.pcall('HMGET', KEYS[1], 'mode', 'quorlock:semaphore', permit)
  if not stored.err and stored[1] == 'quorlock' and stored[2] and stored[3] then
    local attempt, slot = string.match(stored[3], '^(%d+) %d+ %d+ (%d+)$')
    if attempt and tonumber(attempt) <= tonumber(ARGV[2])
        and redis.pcall('EXISTS', KEYS[2]) == 0 then
      if redis.call('HLEN', KEYS[1]) == 4 then
        redis.call('DEL', KEYS[1])
        return 1
      end
      local time = redis.call('TIME')
      if (tonumber(stored[2]) or 0) * 1000 >= time[1] * 1000000 + time[2] then
        redis.call('HDEL', KEYS[1], permit, 'quorlock:slot:' .. slot)
        return 1
      end
    end
  end
end
