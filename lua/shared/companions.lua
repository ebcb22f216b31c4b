-- shared/companions: appended to a script that uses the queues of a lock. If that script fails
-- because a companion key is of the wrong type, the error reply names this key. WRONGTYPE is
-- returned only for the lock's own key, because it means that another kind of lock is held.
local is_done, reply = pcall(acquire)
if is_done then
  return reply
end
reply = to_error_reply(reply)
if is_wrong_type(reply) and not is_wrong_type(redis.pcall('HLEN', KEYS[1])) then
  for at = 2, #KEYS do
    if is_wrong_type(redis.pcall('ZSCORE', KEYS[at], '')) then
      return redis.error_reply('ERR the key ' .. KEYS[at] .. ' is not a sorted set: delete it')
    end
  end
end
return reply
