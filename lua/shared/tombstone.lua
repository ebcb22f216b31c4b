-- shared/tombstone: goes after a release, and lets no candidate of what is released win any more,
-- however late.
-- KEYS[last] is the counter, ARGV[last] the candidate, `reply` what the release says.
--
-- Not where the candidate is too far ahead to win anyway, see shared/ballot: a client whose clock is wrong must not
-- move the counter there. Nor where there is something else than a counter, which stays as it is.
local function raise(found)
  local mine = tonumber(ARGV[#ARGV])
  local counter = 0
  if found then
    -- An error must not keep anybody from releasing.
    counter = type(found) == 'string' and tonumber(string.match(found, '^%d+$') or '')
  end
  if not counter or mine <= counter then
    return
  end
  if mine > counter + 1 then
    local time = redis.pcall('TIME')
    if not time[1] or mine > time[1] * 1000000 + time[2] + 1000000 then
      return
    end
  end
  redis.pcall('SET', KEYS[#KEYS], ARGV[#ARGV], 'PX', '2592000000')
end
local counter = redis.pcall('GET', KEYS[#KEYS])
if counter ~= ARGV[#ARGV] then
  raise(counter)
end
return reply
