-- shared/inspect: reports the holder of a lock of any kind on this master, and the waiters of a
-- fair lock. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue; only for a fair lock
-- returns  text: the line that shared/any_holder describes, then a line for each of
--          the first 1,000 tickets in the queue
local lines = { describe_any_holder(KEYS[1]) }
if KEYS[2] and redis.call('TYPE', KEYS[2])['ok'] == 'zset' then
  for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999)) do
    lines[#lines + 1] = ticket
  end
end
return table.concat(lines, '\n')
