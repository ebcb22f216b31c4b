-- shared/guard: whether this master may have forgotten locks since it was last seen. Sent on every dial, before the
-- connection serves.
--
-- KEYS[1]  the guard: a hash, 'run_id' -> of the process that was here last, 'since' -> when the master was first seen to
--          have restarted, or lost the guard with everything else, in ms of its clock; 0: never, 'origin' -> the run id
--          of the first of the processes that handed all they knew down to this one, 'durable' -> '1': the process loses
--          nothing when it ends
-- ARGV[1]  the origin that the caller knows this master by, or ''
-- ARGV[2]  'strict': a master without a guard is taken for one that forgot; 'observed': only if the caller knew it
-- ARGV[3]  'durable', 'volatile': whether it fsyncs every write before it answers, as the caller has just asked it; '':
--          nobody asked
-- ARGV[4]  for how many ms it has not heard from the master that it knows
-- returns  text  'SINCE NOW RUN_ID ORIGIN DURABILITY', times in ms of this master's clock; DURABILITY as ARGV[3]
--
-- Safe to run twice or late: the second run finds what the first one wrote. A restart is seen by the run id, and not by
-- uptime, which is wall-clock arithmetic. What a snapshot or a tail of a log brings back has the old run id. A guard that
-- makes no sense is none, and the caller is taken for one who knew it.
local info = '\n' .. redis.call('INFO')
local function says(line)
  return string.find(info, '\n' .. line .. '\r', 1, true) ~= nil
end
local run_id = string.match(info, '\nrun_id:(%x+)')
if not run_id then
  return redis.error_reply('ERR its INFO has no run_id')
end
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

-- Whose data are its own: a replica has the guard of its master, and its own disk says nothing of what it was not sent.
local received = tonumber(string.match(info, '\ntotal_net_repl_input_bytes:(%d+)') or 0)
local is_alone = says('role:master') and says('connected_slaves:0') and says('repl_backlog_active:0')
  and says('master_replid2:' .. string.rep('0', 40)) and received == 0
-- Before version 7 a server may answer ahead of the fsync, while a script of somebody else takes long.
local version = tonumber(string.match(info, '\nredis_version:(%d+)%.') or 0)
local may_last = ARGV[3] == 'durable' and is_alone and version >= 7 and says('aof_enabled:1')
-- A log that is switched on while the server runs is of use once it has been written anew.
local is_whole = says('aof_rewrite_in_progress:0') and says('aof_rewrite_scheduled:0')
  and says('aof_last_bgrewrite_status:ok')
local was_loaded = is_whole and says('aof_last_rewrite_time_sec:-1')

local known = ARGV[1]
local seen = redis.pcall('HMGET', KEYS[1], 'run_id', 'since', 'origin', 'durable')
if seen.err then
  local gone = string.find(seen.err, 'WRONGTYPE', 1, true) and redis.pcall('DEL', KEYS[1])
  if gone ~= 1 then
    return redis.error_reply(gone and 'ERR the guard is of another type and cannot be deleted' or seen.err)
  end
  known = known ~= '' and known or 'another'
end
local before, origin, durable = seen[1], seen[3] or seen[1], seen[4]
-- Digits only: -0, nan and 1e-9 are numbers, too.
local since = tonumber(string.match(seen[2] or '', '^%d+$') or '')
local is_sound = before and since and string.find(before, '^%x+$') and string.find(origin, '^%x+$')
if not is_sound then
  if before or seen[2] or origin or durable then
    known = known ~= '' and known or 'another'
  end
  local is_new = known == '' and ARGV[2] ~= 'strict'
  before, since, origin, durable = run_id, is_new and 0 or now, run_id, '0'
end

local is_stranger = known ~= '' and known ~= origin
local forgot = false
if before ~= run_id then
  forgot = is_stranger or not (durable == '1' and may_last and was_loaded)
  durable = forgot and '0' or durable
elseif is_stranger then
  -- Whoever saw it first did not know it; or what it was handed down is not what this caller knows; or it forgot before
  -- the one that this caller knows was last heard from, so it is another server.
  forgot = since == 0 or origin ~= run_id or now - since > tonumber(ARGV[4])
end
if forgot then
  since, origin = now, run_id
end
-- A clock that was set back.
since = math.min(since, now)
if may_last and is_whole then
  durable = '1'
elseif ARGV[3] ~= '' and not may_last then
  durable = '0'
end
local since_text = string.format('%.0f', since)
if seen[1] ~= run_id or seen[2] ~= since_text or seen[3] ~= origin or seen[4] ~= durable then
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', since_text, 'origin', origin, 'durable', durable or '0')
end
local durability = durable == '1' and 'durable' or 'volatile'
return string.format('%s %.0f %s %s %s', since_text, now, run_id, origin, durability)
