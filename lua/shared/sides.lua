-- shared/sides: goes after a script that reads the queue of a fair lock, and says which of the keys
-- beside the lock is not what it should be. Only the type of the lock's
-- own key tells another kind of lock.
local is_done, reply = pcall(acquire)
if is_done then
  return reply
end
reply = failed(reply)
if is_wrong_type(reply) and not is_wrong_type(redis.pcall('HLEN', KEYS[1])) then
  for at = 2, 3 do
    if is_wrong_type(redis.pcall('ZSCORE', KEYS[at], '')) then
      return redis.error_reply('ERR the key ' .. KEYS[at] .. ' is not a sorted set: delete it')
    end
  end
end
return reply
