-- read_write/uncontended_release: the common case of read_write/release, before its parts are even
-- defined, because that takes as long as all the rest. The caller has an entry of this attempt, and
-- no one waits.
do
  local call, key = redis.call, KEYS[1]
  local field = ARGV[3] == 'write' and 'quorlock:writer' or 'quorlock:reader:' .. ARGV[1]
  local stored = redis.pcall('HMGET', key, field, 'mode')
  local attempt, owner = string.match(stored[1] or '', '^(%d+) %d+ %d+ ?(.*)$')
  if attempt == ARGV[2] and stored[2] == 'quorlock' and (owner == '' or owner == ARGV[1])
      and redis.pcall('EXISTS', KEYS[2], KEYS[4]) == 0 then
    -- The entry and two fields that every entry brings: see shared/entries.
    if call('HLEN', key) == 3 then
      call('DEL', key)
    else
      call('HDEL', key, field)
    end
    return 1
  end
end
