-- shared/inspect: reports the holder of a lock of any kind on this master, and its waiters. Changes
-- nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue; only for a fair lock
-- returns  text: the line that shared/any_holder describes, then a line for each of
--          the first 1,000 tickets in the queue
local lines = { describe_any_holder(KEYS[1]) }
for _, kind in ipairs(kinds) do
  for _, ticket in ipairs(kind.waiters and kind.waiters() or {}) do
    lines[#lines + 1] = ticket
  end
end
return table.concat(lines, '\n')
