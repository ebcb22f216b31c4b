-- dummy/acquire: takes the lock on this master if it is free. Returns the slot that is granted.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return describe_holder(KEYS[1], 'quorlock:dummy', 0)
end
local stored = store_lock(true, ARGV[1], ARGV[3], 'quorlock:dummy', ARGV[2], ARGV[4])
return stored == 1 and 7 or stored
