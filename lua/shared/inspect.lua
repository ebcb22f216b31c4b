-- shared/inspect: reports the holders of a lock of any kind on this master, and its waiters.
-- Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2], ..  the further keys of a lock with queues: see the describe.lua of its kind
-- returns  text: a line 'KIND LEFT DEPTH DIGEST OWNER' for each holder, or 'free', then a line for
--          each of the first 1,000 tickets in the queue
--          KIND: the name of a kind, or 'other' for a key that is no lock. '/shared' follows if
--          others may hold the lock at the same time
--          LEFT: milliseconds left, -1 without a TTL
--          DIGEST: '-' for a key that is no lock
--          OWNER: for a mutex the time and the client name, if its value is a token of this crate
--          with a name
local lines = {}
local of_kind, holders = describe_holders(KEYS[1])
for at, holder in ipairs(holders) do
  local name, left = of_kind and of_kind.name or 'other', string.format('%.0f', holder.left)
  name = holder.is_shared and name .. '/shared' or name
  lines[at] = table.concat({ name, left, holder.depth, holder.digest, holder.shown }, ' ')
end
lines[1] = lines[1] or 'free'
for _, kind in ipairs(kinds) do
  for _, ticket in ipairs(kind.waiters and kind.waiters() or {}) do
    lines[#lines + 1] = ticket
  end
end
return table.concat(lines, '\n')
