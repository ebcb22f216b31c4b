-- shared/tombstone: goes behind a release, and lets no candidate of what is released win any more, however late.
-- KEYS[last] is the counter, ARGV[last] the candidate, `reply` what the release says.
--
-- Not where the candidate is too far ahead to win anyway, see shared/ballot: a client whose clock is wrong must not
-- move the counter there.
local function raise(counter)
  local mine = tonumber(ARGV[#ARGV])
  -- What is full, or is no counter, must not keep anybody from releasing.
  if type(counter) == 'table' then
    return
  end
  counter = tonumber(counter or 0) or 0
  if mine <= counter then
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
