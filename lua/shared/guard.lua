-- shared/guard: whether this master may have forgotten locks since it was last seen. Sent on every dial, before the
-- connection serves.
--
-- KEYS[1]  the guard: a hash, 'run_id' -> of the process that wrote it, 'since' -> when the master was first seen to
--          have restarted, or lost the guard with everything else, in ms of its clock; 0: never
-- ARGV[1]  the run id that the caller knows this master by, or ''
-- ARGV[2]  'strict': a master without a guard is taken for one that forgot; 'observed': only if the caller knew it
-- returns  text  'SINCE NOW RUN_ID', times in ms of this master's clock
--
-- Safe to run twice or late: the second run finds what the first one wrote. A restart is seen by the run id, and not by
-- uptime, which is wall-clock arithmetic. What a snapshot or a tail of a log brings back has the old run id.
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local seen = redis.call('HMGET', KEYS[1], 'run_id', 'since')
local since = tonumber(seen[2] or 0)
if seen[1] ~= run_id then
  local is_new = not seen[1] and ARGV[1] == '' and ARGV[2] ~= 'strict'
  since = is_new and 0 or now
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', string.format('%.0f', since))
elseif since == 0 and ARGV[1] ~= '' and ARGV[1] ~= run_id then
  -- Whoever saw it first took it for a new one.
  since = now
  redis.call('HSET', KEYS[1], 'since', string.format('%.0f', since))
end
return string.format('%.0f %.0f ', since, now) .. run_id
