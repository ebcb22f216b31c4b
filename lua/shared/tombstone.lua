-- shared/tombstone: appended to the release of a fenced lock. Raises the counter to the candidate
-- of the released lock. An acquisition with that candidate is refused if it arrives later. A new
-- counter lives for 3 s: after that, shared/ballot refuses the candidate because it is too old. A
-- counter that existed keeps a longer TTL.
--
-- KEYS[last]  the counter
-- ARGV[last]  the candidate
-- `reply`     the reply of the release

-- Raises the counter. Does not touch a value that is no counter. Does nothing if the candidate is
-- so far above the clock that shared/ballot would refuse it. A client whose clock is wrong must not
-- move the counter.
local function raise(found)
  local candidate = tonumber(ARGV[#ARGV])
  local counter = 0
  if found then
    -- `found` may be an error reply. An error must not prevent a release.
    counter = type(found) == 'string' and tonumber(string.match(found, '^%d+$') or '')
  end
  if not counter or candidate <= counter then
    return
  end
  if candidate > counter + 1 then
    local time = redis.pcall('TIME')
    if not time[1] or candidate > time[1] * 1000000 + time[2] + 1000000 then
      return
    end
  end
  local left = found and redis.pcall('PTTL', KEYS[#KEYS]) or 0
  if type(left) ~= 'number' or left < 0 then
    left = 2592000000 -- 30 days
  end
  redis.pcall('SET', KEYS[#KEYS], ARGV[#ARGV], 'PX', string.format('%.0f', math.max(left, 3000)))
end
local counter = redis.pcall('GET', KEYS[#KEYS])
if counter ~= ARGV[#ARGV] then
  raise(counter)
end
return reply
