-- shared/tombstone: goes behind a release, and lets no candidate of what is released win any more, however late.
-- KEYS[last] is the counter, ARGV[last] the candidate, `reply` what the release says.
local counter = redis.pcall('GET', KEYS[#KEYS])
-- What is full, or is no counter, must not keep anybody from releasing.
if type(counter) ~= 'table' and (tonumber(counter or 0) or 0) < tonumber(ARGV[#ARGV]) then
  redis.pcall('SET', KEYS[#KEYS], ARGV[#ARGV], 'PX', 2592000000)
end
return reply
