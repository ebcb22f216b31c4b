-- Reads and writes a value for holders of a fenced lock.
--
-- KEYS[1]  the value
-- KEYS[2]  the largest token seen
-- ARGV[1]  the caller's token
-- ARGV[2]  the value to write; absent to read only
-- returns  the value as it is now, or an error that starts with STALE
--
-- Tokens are numbers: as strings, '9' is above '10'.
local highest = redis.call('GET', KEYS[2])
if highest and tonumber(ARGV[1]) < tonumber(highest) then
  return redis.error_reply('STALE token ' .. ARGV[1] .. ': ' .. highest .. ' has passed')
end
redis.call('SET', KEYS[2], ARGV[1])
if ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2])
end
return redis.call('GET', KEYS[1])
