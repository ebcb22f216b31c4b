-- semaphore/uncontended_release: the common case of semaphore/release: the caller has an entry of
-- this attempt and its slot, no one waits, and no other lease has ended. Runs before the functions
-- of semaphore/release are defined, which takes as long as all the rest.
do
  local call, key, permit = redis.call, KEYS[1], 'quorlock:permit:' .. ARGV[1]
  local stored = redis.pcall('HMGET', key, permit, 'mode', 'quorlock:semaphore')
  local attempt, slot = string.match(stored[1] or '', '^(%d+) %d+ (%d+)$')
  local earliest = stored[2] == 'quorlock' and tonumber(stored[3] or '')
  if attempt == ARGV[2] and earliest and redis.pcall('EXISTS', KEYS[2]) == 0 then
    -- The fields are the entry, its slot and the two of every lock: see shared/permits. Another
    -- holder would have two more.
    if call('HLEN', key) == 4 then
      call('DEL', key)
      return 1
    end
    local place = 'quorlock:slot:' .. slot
    local owner, time = call('HMGET', key, place)[1], call('TIME')
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    if owner == ARGV[1] and earliest >= now then
      call('HDEL', key, permit, place)
      return 1
    end
  end
end
