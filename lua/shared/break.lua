-- shared/break: removes the given holders of a lock of any kind on this master, and notifies the
-- next waiter. The holders are those that an inspection has shown, so a newer holder keeps the
-- lock. The counter of fencing tokens stays.
--
-- KEYS[1]  the lock
-- KEYS[2], ..  the further keys of a lock with queues: see the describe.lua of its kind
-- ARGV[1]  the channel on which waiters of Redisson listen
-- ARGV[2]  the holders: a line 'KIND DIGEST' for each (see shared/any_holder)
-- returns  1       at least one of the holders had it, and none of them has it now
--          0       nothing is held here
--          -n      others hold it for n more milliseconds (n >= 1)
--          nil     another holds it without a TTL
--          'kind'  the key is not a lock
--
-- Safe to run twice or late: the second run finds no key, or the key of another holder. But if a
-- removed owner has acquired the lock again, a late run deletes that lock.
local kind, holders = describe_holders(KEYS[1])
if not holders[1] then
  return 0
elseif not kind then
  return 'kind'
end
local is_broken, is_endless, left = false, false, 1
for _, holder in ipairs(holders) do
  if string.find(ARGV[2], kind.name .. ' ' .. holder.digest .. '\n', 1, true) then
    kind.remove(KEYS[1], holder.by)
    is_broken = true
  end
  is_endless = is_endless or holder.left < 0
  left = math.max(left, holder.left)
end
if not is_broken then
  return not is_endless and -left
end
-- The messages are only hints, so errors are ignored.
for _, waiting in ipairs(kinds) do
  if waiting.on_break then
    waiting.on_break(kind.name, ARGV[1])
  end
end
return 1
