-- shared/guard: finds out whether this master may have forgotten locks since it was last seen. Sent
-- on every dial, before the connection serves anything else.
--
-- KEYS[1]  the guard record, a hash:
--          'run_id'   the run id of the process that was here last
--          'since'    when this master was first seen to have restarted, or to have lost the record
--                     with everything else, in ms of its clock; 0: never
--          'origin'   the run id of the first process in the chain of processes that handed all
--                     their data down to this one
--          'durable'  '1': the process loses nothing when it ends
--          'seen'     when this record was first written, in ms of this master's clock; missing
--                     when a version of this crate without this field wrote the record
-- ARGV[1]  an origin by which the caller knows this master, or ''
-- ARGV[2]  'strict': a master that was taken for new counts as having forgotten when it was first
--          seen; 'observed': it counts so only if the caller knew it
-- ARGV[3]  'durable' or 'volatile': whether this master fsyncs every write before it answers, as it
--          has just told the caller; '': the caller did not ask
-- ARGV[4]  for how many ms the caller has not heard from the origin in ARGV[1]
-- ARGV[5], ARGV[6], and so on  another origin and the same for it, for each origin that the caller
--          knows besides
-- returns  text  'SINCE NOW RUN_ID ORIGIN DURABILITY', times in ms of this master's clock;
--          DURABILITY is 'durable' or 'volatile'
--
-- Safe to run twice or late: the second run finds what the first one wrote. A restart is recognised
-- by the run id. Uptime would not do, as it is computed from the wall clock. A record that comes
-- back with a snapshot or the tail of a log has the old run id. A malformed record counts as
-- missing, and the caller then counts as one that knew the master.
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

-- A process that is alone has only data of its own. A replica has its master's record, and its disk
-- says nothing about writes that it was not sent.
local received = tonumber(string.match(info, '\ntotal_net_repl_input_bytes:(%d+)') or 0)
local is_alone = says('role:master') and says('connected_slaves:0')
  and says('repl_backlog_active:0') and says('master_replid2:' .. string.rep('0', 40))
  and received == 0
-- Before version 7, a server may answer before the fsync while another client's long script runs.
local version = tonumber(string.match(info, '\nredis_version:(%d+)%.') or 0)
local can_be_durable = ARGV[3] == 'durable' and is_alone and version >= 7 and says('aof_enabled:1')
-- A log that is switched on while the server runs is complete only after it has been rewritten.
local is_complete = says('aof_rewrite_in_progress:0') and says('aof_rewrite_scheduled:0')
  and says('aof_last_bgrewrite_status:ok')
-- Without a rewrite since the start, the log is the one that was loaded at the start.
local was_loaded = is_complete and says('aof_last_rewrite_time_sec:-1')

local is_known = ARGV[1] ~= ''
local found = redis.pcall('HMGET', KEYS[1], 'run_id', 'since', 'origin', 'durable', 'seen')
if found.err then
  local gone = string.find(found.err, 'WRONGTYPE', 1, true) and redis.pcall('DEL', KEYS[1])
  if gone ~= 1 then
    local stuck = 'ERR the guard is of another type and cannot be deleted'
    return redis.error_reply(gone and stuck or found.err)
  end
  is_known = true
end
-- Accepts digits only: tonumber also takes -0, nan and 1e-9.
local function parse_digits(text)
  return tonumber(string.match(text or '', '^%d+$') or '')
end
local recorded, origin, durable = found[1], found[3] or found[1], found[4]
local since, seen = parse_digits(found[2]), parse_digits(found[5])
local is_sound = recorded and since and string.find(recorded, '^%x+$')
  and string.find(origin, '^%x+$')
if not is_sound then
  is_known = is_known or recorded or found[2] or origin or durable
  local is_new = not is_known and ARGV[2] ~= 'strict'
  recorded, since, origin, durable, seen = run_id, is_new and 0 or now, run_id, '0', now
end

-- The shortest silence of the origins that the caller knows and that are not the origin of this
-- process. nil when there are none.
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
if recorded ~= run_id then
  forgot = away or not (durable == '1' and can_be_durable and was_loaded)
  durable = forgot and '0' or durable
elseif away then
  -- The caller knows an origin that this process does not have. The process has none of that
  -- origin's locks, and its record does not say since when, in three cases: the client that first
  -- saw it did not know that origin (since is 0); it inherited its data from a different origin; or
  -- it forgot before the caller last heard from the known origin, and so is another server.
  forgot = since == 0 or origin ~= run_id or now - since > away
end
if forgot then
  since, origin, seen = now, run_id, now
end
-- The clock may have been set back.
since = math.min(since, now)
seen = math.min(seen and seen > 0 and seen or now, now)
if can_be_durable and is_complete then
  durable = '1'
elseif ARGV[3] ~= '' and not can_be_durable then
  durable = '0'
end
local since_text, seen_text = string.format('%.0f', since), string.format('%.0f', seen)
if found[1] ~= run_id or found[2] ~= since_text or found[3] ~= origin or found[4] ~= durable
    or found[5] ~= seen_text then
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', since_text, 'origin', origin,
    'durable', durable or '0', 'seen', seen_text)
end
-- A strict caller does not trust a client that took this master for new. If the master forgot
-- anything, it did so before this record was first written.
if since == 0 and ARGV[2] == 'strict' then
  since_text = seen_text
end
local durability = durable == '1' and 'durable' or 'volatile'
return string.format('%s %.0f %s %s %s', since_text, now, run_id, origin, durability)
