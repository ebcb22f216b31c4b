-- shared/ballot: whether a candidate for the fencing token may win on this master. Goes in front of the scripts
-- that grant.
--
-- A counter never goes down, and holds the largest candidate that won here. A token is a candidate that a
-- majority accepted, so that each is larger than that of any lock before. See docs/guarantees.md.
--
-- The window keeps candidates near this master's time, in microseconds, so that a counter that is lost, or has
-- expired after long idleness, needs not be known: time has passed it. '0' is for what puts a lock back, and
-- asks for nothing new.
--
-- returns  nil             it may, and the counter is raised to it
--          'stale COUNTER' not above the counter
--          'skew MICROS'   outside the window; this master's clock
local function ballot(fence, candidate, window, is_mine)
  local mine = tonumber(candidate)
  -- Numbers below 2^53 only, so that a double holds each.
  local counter = tonumber(redis.call('GET', fence) or 0)
  if mine == counter and (is_mine or window == '0') then
    return nil
  end
  if mine <= counter then
    return string.format('stale %.0f', counter)
  end
  if window ~= '0' then
    local time = redis.call('TIME')
    local micros = time[1] * 1000000 + time[2]
    if mine < micros - window or mine > math.max(micros + window, counter + 1) then
      return string.format('skew %.0f', micros)
    end
  end
  redis.call('SET', fence, candidate, 'PX', 2592000000) -- for 30 days
  return nil
end

