-- read_write/uncontended_release: the common case of read_write/release, before its parts are even
-- defined, because that takes as long as all the rest. The caller has an entry, and no one waits.
do
  local field = ARGV[3] == 'write' and 'quorlock:writer' or 'quorlock:reader:' .. ARGV[1]
  local stored = redis.pcall('HMGET', KEYS[1], 'mode', 'quorlock:read_write', field)
  if not stored.err and stored[1] == 'quorlock' and stored[2] and stored[3] then
    local attempt, owner = string.match(stored[3], '^(%d+) %d+ %d+ ?(.*)$')
    if attempt and tonumber(attempt) <= tonumber(ARGV[2]) and (owner == '' or owner == ARGV[1])
        and redis.pcall('EXISTS', KEYS[2], KEYS[4]) == 0 then
      if redis.call('HLEN', KEYS[1]) == 3 then
        redis.call('DEL', KEYS[1])
      else
        redis.call('HDEL', KEYS[1], field)
      end
      return 1
    end
  end
end
