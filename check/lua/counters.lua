-- Finds the counters of fencing tokens that are ahead of this server's clock, for
-- a check before the masters are changed. Changes nothing. One call looks at about 1,000 keys.
--
-- ARGV[1]  the cursor of SCAN: '0' at the start
-- ARGV[2]  how far a counter may be ahead, in microseconds
-- returns  text, lines: the next cursor, which is '0' at the end; then 'MICROS KEY' for each
--          counter that is further ahead
--          error if the user may not use SCAN or TIME
--
-- The keys that are found cannot be declared.
local page = redis.pcall('SCAN', ARGV[1], 'MATCH', 'quorlock:fence:*', 'COUNT', '1000')
if page.err then
  return page
end
local time = redis.pcall('TIME')
if time.err then
  return time
end
local latest = time[1] * 1000000 + time[2]
local lines = { page[1] }
for _, key in ipairs(page[2]) do
  -- The user may not read a counter of another user's lock.
  local counter = redis.pcall('GET', key)
  local digits = type(counter) == 'string' and string.match(counter, '^%d+$')
  local ahead = digits and tonumber(digits) - latest or 0
  if ahead > tonumber(ARGV[2]) then
    lines[#lines + 1] = string.format('%.0f ', ahead) .. string.gsub(key, '%c', ' ')
  end
end
return table.concat(lines, '\n')
