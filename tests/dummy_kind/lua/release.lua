-- dummy/release: releases the caller's lock.
local stored = redis.call('HMGET', KEYS[1], ARGV[1], 'quorlock:dummy', 'mode')
if stored[1] then
  if redis.call('GET', KEYS[7]) ~= '14' then
    return redis.error_reply('ERR the last key has not the last argument')
  end
  redis.call('DEL', KEYS[7])
  remove_owner(ARGV[1], 'quorlock:dummy', stored[3])
  return 1
end
return redis.call('EXISTS', KEYS[1]) == 0 and 0 or describe_holder(KEYS[1], 'quorlock:dummy', 0)
