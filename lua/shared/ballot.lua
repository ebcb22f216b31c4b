-- shared/ballot: decides whether this master accepts a candidate for the fencing token. Prepended
-- to the scripts that grant.
--
-- A counter never goes down. It holds the largest candidate that this master has accepted. A token
-- is a candidate that a majority accepted. So each token is larger than the tokens of all earlier
-- locks. See docs/guarantees.md.
--
-- The window is the largest distance of a candidate from this master's time, in microseconds. So
-- every new candidate is above old counters, and the loss or expiry of these does no harm. A window
-- of '0' accepts any distance, and also a candidate that is not above the counter. A heal sends
-- '0': its candidate is the token of a lock that is held, and another client, whose attempt failed,
-- may have raised the counter since.
--
-- A counter is a string of digits. Any other value under its key belongs to another program, and is
-- left alone.
--
-- returns  nil             accepted; the counter is at least the candidate
--          'stale COUNTER' refused: not above the counter, and no heal
--          'skew MICROS'   refused: outside the window; MICROS is this master's clock
--          error           the key does not hold a counter, or the counter cannot be raised
local function ballot(fence, candidate, window, is_mine)
  -- All numbers are below 2^53, so a double holds each of them exactly.
  local offered, width, micros = tonumber(candidate), tonumber(window), nil
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
  if offered <= counter and width == 0 or offered == counter and is_mine then
    return nil
  end
  if offered <= counter then
    return string.format('stale %.0f', counter)
  end
  if micros and (offered < micros - width or offered > math.max(micros + width, counter + 1)) then
    return string.format('skew %.0f', micros)
  end
  local set = redis.pcall('SET', fence, candidate, 'PX', '2592000000') -- 30 days
  return set.err and set
end

