-- dummy/extend: makes the caller's lock live for the TTL.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:dummy', 'mode')
if stored[1] and is_unaltered(stored[3]) then
  return redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return redis.call('EXISTS', KEYS[1]) == 0 and 0 or describe_holder(KEYS[1], 'quorlock:dummy', 0)
