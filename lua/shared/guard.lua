-- shared/guard: whether this master may have forgotten locks since it was last seen. Sent on every dial, before the
-- connection serves.
--
-- KEYS[1]  the guard: a hash, 'run_id' -> of the process that was here last, 'since' -> when the master was first seen to
--          have restarted, or lost the guard with everything else, in ms of its clock; 0: never, 'origin' -> the run id
--          of the first of the processes that handed all they knew down to this one, 'durable' -> '1': the process loses
--          nothing when it ends, 'seen' -> when this guard was written first, in ms of its clock; nothing: by a version
--          of this crate that did not write it down
-- ARGV[1]  an origin that the caller knows this master by, or ''
-- ARGV[2]  'strict': a master that was taken for new counts as one that forgot when it was first seen; 'observed': only
--          if the caller knew it
-- ARGV[3]  'durable', 'volatile': whether it fsyncs every write before it answers, as the caller has just asked it; '':
--          nobody asked
-- ARGV[4]  for how many ms it has not heard from the master that it knows
-- ARGV[5], ARGV[6], and so on: another origin and for how long, where it knows more than one
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

local is_known = ARGV[1] ~= ''
local found = redis.pcall('HMGET', KEYS[1], 'run_id', 'since', 'origin', 'durable', 'seen')
if found.err then
  local gone = string.find(found.err, 'WRONGTYPE', 1, true) and redis.pcall('DEL', KEYS[1])
  if gone ~= 1 then
    return redis.error_reply(gone and 'ERR the guard is of another type and cannot be deleted' or found.err)
  end
  is_known = true
end
-- Digits only: -0, nan and 1e-9 are numbers, too.
local function whole(text)
  return tonumber(string.match(text or '', '^%d+$') or '')
end
local before, origin, durable = found[1], found[3] or found[1], found[4]
local since, seen = whole(found[2]), whole(found[5])
local is_sound = before and since and string.find(before, '^%x+$') and string.find(origin, '^%x+$')
if not is_sound then
  is_known = is_known or before or found[2] or origin or durable
  local is_new = not is_known and ARGV[2] ~= 'strict'
  before, since, origin, durable, seen = run_id, is_new and 0 or now, run_id, '0', now
end

-- For how long nobody has heard from what the caller knows, where that is not what this one was
-- handed down.
local away
local function compare(known, silence)
  if known ~= '' and known ~= origin then
    away = math.min(away or math.huge, tonumber(silence))
  end
end
compare(ARGV[1], ARGV[4])
for at = 5, #ARGV, 2 do
  compare(ARGV[at], ARGV[at + 1])
end
local forgot = false
if before ~= run_id then
  forgot = away or not (durable == '1' and may_last and was_loaded)
  durable = forgot and '0' or durable
elseif away then
  -- Whoever saw it first did not know it; or what it was handed down is not what this caller knows; or it forgot before
  -- the one that this caller knows was last heard from, so it is another server.
  forgot = since == 0 or origin ~= run_id or now - since > away
end
if forgot then
  since, origin, seen = now, run_id, now
end
-- A clock that was set back.
since = math.min(since, now)
seen = math.min(seen and seen > 0 and seen or now, now)
if may_last and is_whole then
  durable = '1'
elseif ARGV[3] ~= '' and not may_last then
  durable = '0'
end
local since_text, seen_text = string.format('%.0f', since), string.format('%.0f', seen)
if found[1] ~= run_id or found[2] ~= since_text or found[3] ~= origin or found[4] ~= durable or found[5] ~= seen_text then
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', since_text, 'origin', origin, 'durable', durable or '0',
    'seen', seen_text)
end
-- A caller that took the master for new knew nothing of it. Whatever the master forgot, it forgot
-- before this key was written.
if since == 0 and ARGV[2] == 'strict' then
  since_text = seen_text
end
local durability = durable == '1' and 'durable' or 'volatile'
return string.format('%s %.0f %s %s %s', since_text, now, run_id, origin, durability)
