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
--          error           what is there is no counter, or cannot be raised
local function ballot(fence, candidate, window, is_mine)
  -- Numbers below 2^53 only, so that a double holds each.
  local mine, width, micros = tonumber(candidate), tonumber(window), nil
  if width > 0 then
    local time = redis.pcall('TIME')
    if time.err then
      return time
    end
    micros = time[1] * 1000000 + time[2]
    if mine >= micros - width and mine <= micros + width then
      -- Most win: raise it first, and put it back for who does not. One command less than to look first. Servers before
      -- 6.2 know no GET here, and go the long way.
      local before = redis.pcall('SET', fence, candidate, 'PX', '2592000000', 'GET') -- for 30 days
      if not before then
        return nil
      end
      -- Else it is an error, and nothing was set.
      if type(before) == 'string' then
        local counter = tonumber(before)
        if counter and counter < mine then
          return nil
        end
        redis.call('SET', fence, before, 'PX', '2592000000')
      end
    end
  end
  local counter = redis.pcall('GET', fence)
  if type(counter) == 'table' then
    return counter
  end
  counter = tonumber(counter or 0)
  if not counter then
    return redis.error_reply('ERR the counter is no number')
  end
  if mine == counter and (is_mine or width == 0) then
    return nil
  end
  if mine <= counter then
    return string.format('stale %.0f', counter)
  end
  if micros and (mine < micros - width or mine > math.max(micros + width, counter + 1)) then
    return string.format('skew %.0f', micros)
  end
  local set = redis.pcall('SET', fence, candidate, 'PX', '2592000000')
  return set.err and set
end

