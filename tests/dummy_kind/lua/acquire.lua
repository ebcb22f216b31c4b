-- dummy/acquire: takes the lock on this master if it is free.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return describe_holder(KEYS[1], 'quorlock:dummy', 0)
end
return store_lock(true, ARGV[1], ARGV[3], 'quorlock:dummy', ARGV[2], ARGV[4])
