-- semaphore/uncontended_release: the common case of semaphore/release, before its parts are even
-- defined, because that takes as long as all the rest. The caller has an entry of this attempt, no
-- one waits, and no other lease has ended.
do
  local call, key, permit = redis.call, KEYS[1], 'quorlock:permit:' .. ARGV[1]
  local stored = redis.pcall('HMGET', key, permit, 'mode')
  local attempt, slot = string.match(stored[1] or '', '^(%d+) %d+ %d+ (%d+)$')
  if attempt == ARGV[2] and stored[2] == 'quorlock' and redis.pcall('EXISTS', KEYS[2]) == 0 then
    -- The entry, its slot and two fields that every entry brings: see shared/permits.
    if call('HLEN', key) == 4 then
      call('DEL', key)
      return 1
    end
    local earliest, time = call('HMGET', key, 'quorlock:semaphore')[1], call('TIME')
    if (tonumber(earliest or '') or 0) * 1000 >= time[1] * 1000000 + time[2] then
      call('HDEL', key, permit, 'quorlock:slot:' .. slot)
      return 1
    end
  end
end
