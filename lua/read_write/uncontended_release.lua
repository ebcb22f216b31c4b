-- read_write/uncontended_release: the common case of read_write/release: the caller has an entry of
-- this attempt and no other entry, and no one waits. Runs before the functions of
-- read_write/release are defined, which takes as long as all the rest.
do
  local call, key, reader = redis.call, KEYS[1], 'quorlock:reader:' .. ARGV[1]
  local stored = redis.pcall('HMGET', key, 'mode', 'quorlock:read_write', 'quorlock:writer', reader)
  local attempt, owner = string.match(stored[3] or stored[4] or '', '^(%d+) %d+ %d+ ?(.*)$')
  local is_only = not (stored[3] and stored[4]) and (stored[4] or owner == ARGV[1])
  if attempt == ARGV[2] and stored[1] == 'quorlock' and stored[2] and is_only
      and redis.pcall('EXISTS', KEYS[2], KEYS[4]) == 0 then
    -- The fields are the entry and the two of every lock: see shared/entries.
    if call('HLEN', key) == 3 then
      call('DEL', key)
    else
      call('HDEL', key, stored[3] and 'quorlock:writer' or reader)
    end
    return 1
  end
end
