-- shared/ballot: whether a candidate for the fencing token may win on this master. Goes before the
-- scripts that grant.
--
-- A counter never goes down, and holds the largest candidate that won here. A token is a candidate that a
-- majority accepted, so that each is larger than that of any lock before. See docs/guarantees.md.
--
-- The window keeps candidates near this master's time, in microseconds, so that a counter that is lost, or has
-- expired after long idleness, needs not be known: time has passed it. '0' is for what puts a lock back, and
-- asks for nothing new.
--
-- A counter is written in digits. Whatever else is under its key belongs to somebody else, and
-- stays as it is.
--
-- returns  nil             it may, and the counter is raised to it
--          'stale COUNTER' not above the counter
--          'skew MICROS'   outside the window; this master's clock
--          error           what is there is not a counter, or cannot be raised
local function ballot(fence, candidate, window, is_mine)
  -- Numbers below 2^53 only, so that a double holds each.
  local mine, width, micros = tonumber(candidate), tonumber(window), nil
  if width > 0 then
    local time = redis.pcall('TIME')
    if time.err then
      return time
    end
    micros = time[1] * 1000000 + time[2]
  end
  local found = redis.pcall('GET', fence)
  local counter = 0
  if type(found) == 'string' then
    counter = tonumber(string.match(found, '^%d+$') or '')
  elseif found then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      return found
    end
    counter = nil
  end
  if not counter then
    return redis.error_reply('ERR the key ' .. fence .. ' is not a counter: delete it')
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
  local set = redis.pcall('SET', fence, candidate, 'PX', '2592000000') -- for 30 days
  return set.err and set
end

