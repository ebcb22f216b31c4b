-- dummy/release: releases the caller's lock.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:dummy', 'mode')
if stored[1] then
  remove_owner(ARGV[1], 'quorlock:dummy', stored[3])
  return 1
end
return redis.call('EXISTS', KEYS[1]) == 0 and 0 or describe_holder(KEYS[1], 'quorlock:dummy', 0)
