-- shared/break: deletes a lock of any kind on this master, if one of the given holders has it, and
-- notifies the next waiter. The holders are those that an inspection has shown, so a newer holder
-- keeps the lock. The counter of fencing tokens stays.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue; only for a fair lock
-- KEYS[3]  the deadlines; only for a fair lock
-- ARGV[1]  the channel on which waiters of Redisson listen
-- ARGV[2]  the holders: a line 'KIND DIGEST' for each (see shared/any_holder)
-- returns  1       one of the holders had it, and it is gone
--          0       nothing is held here
--          -n      another holds it for n more milliseconds (n >= 1)
--          nil     another holds it without a TTL
--          'kind'  the key is not a lock
--
-- Safe to run twice or late: the second run finds no key, or the key of another holder. If an owner
-- has acquired the lock again, a late run deletes the later lock.
local pattern = '^(%S+) (%S+) %S+ (%S+)'
local kind, left, digest = string.match(describe_any_holder(KEYS[1]), pattern)
if not kind then
  return 0
elseif kind == 'other' then
  return 'kind'
end
if not string.find(ARGV[2], kind .. ' ' .. digest .. '\n', 1, true) then
  left = tonumber(left)
  return left >= 0 and -math.max(left, 1)
end
redis.call('DEL', KEYS[1])
-- The messages are only hints, so errors are ignored.
for _, waiting in ipairs(kinds) do
  if waiting.on_break then
    waiting.on_break(kind, ARGV[1])
  end
end
return 1
