-- dummy/acquire: takes the lock on this master if it is free. Writes the last of many arguments
-- under the last of many keys. Returns the slot that is granted, which is always the first.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return describe_holder(KEYS[1], 'quorlock:dummy', 0)
end
redis.call('SET', KEYS[7], ARGV[14], 'PX', ARGV[4])
return store_lock(true, ARGV[1], ARGV[3], 'quorlock:dummy', ARGV[2], ARGV[4])
