-- shared/origin: finds out whether this master may have forgotten locks since it was last seen. The
-- script is sent on every dial, before the connection serves anything else.
--
-- KEYS[1]  the origin record, a hash:
--          'run_id'   the run id of the process that was here last
--          'since'    when this master was first seen to have forgotten its locks, in ms of its
--                     clock; 0: never
--          'origin'   the run id of the first process in the chain of processes that handed all
--                     their data down to this one
--          'durable'  '1': the process loses nothing when it ends
--          'seen'     when this record was first written, in ms of this master's clock
--          'replid'   the replication id of the process
-- ARGV[1]  an origin by which the caller knows this master, or ''
-- ARGV[2]  'strict': a master without a record counts as having forgotten its locks. If other
--          callers took it for new, it counts as having forgotten them when it was first seen.
--          'observed': a master without a record counts so only if the caller knew it.
-- ARGV[3]  'durable': this master has just told the caller that it fsyncs every write before it
--          answers; 'volatile': it has told the caller that it does not; '': the caller did not ask
-- ARGV[4]  the ms since the caller last heard from the origin in ARGV[1]
-- ARGV[5], ARGV[6], and so on  two arguments like ARGV[1] and ARGV[4] for each further origin that
--          the caller knows
-- returns  text  'SINCE NOW RUN_ID ORIGIN DURABILITY SIGN'
--          SINCE and NOW: in ms of this master's clock
--          DURABILITY: 'durable' or 'volatile'
--          SIGN: how this run found that this master forgot its locks: 'missing', 'restarted',
--          'promoted' or 'replaced'; 'earlier' if another run found it
--
-- Safe to run twice or late: the second run finds what the first one wrote. The run id tells
-- whether the master has restarted. The uptime cannot tell it, because a server computes the uptime
-- from its wall clock. A record that comes back with a snapshot or the tail of a log has the old
-- run id. A malformed record counts as missing. The caller then counts as having known the master.
--
-- The replication id tells whether the process was a replica meanwhile, and may have replaced its
-- data by that of another server. A process that is promoted always gets a new one. Other events
-- change the id as well, such as the first replica, and count as a loss, too. A rule that tells
-- them apart by the earlier id and its offset would miss losses.
local info = '\n' .. redis.call('INFO')
local function says(line)
  return string.find(info, '\n' .. line .. '\r', 1, true) ~= nil
end
local run_id = string.match(info, '\nrun_id:(%x+)')
if not run_id then
  return redis.error_reply('ERR its INFO has no run_id')
end
local replid = string.match(info, '\nmaster_replid:(%x+)') or ''
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

-- A process is alone if it has only data of its own. A replica is not alone: it has a copy of its
-- master's record. Its disk may lack writes that were never sent to it.
local received = tonumber(string.match(info, '\ntotal_net_repl_input_bytes:(%d+)') or 0)
local is_alone = says('role:master') and says('connected_slaves:0')
  and says('repl_backlog_active:0') and says('master_replid2:' .. string.rep('0', 40))
  and received == 0
-- Before version 7, a server may answer before the fsync while a long script of another client
-- runs.
local version = tonumber(string.match(info, '\nredis_version:(%d+)%.') or 0)
local can_be_durable = ARGV[3] == 'durable' and is_alone and version >= 7 and says('aof_enabled:1')
-- If the log is switched on while the server runs, it is complete only after a rewrite.
local is_complete = says('aof_rewrite_in_progress:0') and says('aof_rewrite_scheduled:0')
  and says('aof_last_bgrewrite_status:ok')
-- If there was no rewrite since the start, the server has loaded this log at the start.
local was_loaded = is_complete and says('aof_last_rewrite_time_sec:-1')

local is_known = ARGV[1] ~= ''
local sign = 'earlier'
local found = redis.pcall('HMGET', KEYS[1], 'run_id', 'since', 'origin', 'durable', 'seen',
  'replid')
if found.err then
  local gone = string.find(found.err, 'WRONGTYPE', 1, true) and redis.pcall('DEL', KEYS[1])
  if gone ~= 1 then
    local stuck = 'ERR the origin key is of another type and cannot be deleted'
    return redis.error_reply(gone and stuck or found.err)
  end
  is_known = true
end
-- Accepts digits only. tonumber alone would also accept -0, nan and 1e-9.
local function parse_digits(text)
  return tonumber(string.match(text or '', '^%d+$') or '')
end
local recorded, origin, durable, recorded_replid = found[1], found[3], found[4], found[6]
local since, seen = parse_digits(found[2]), parse_digits(found[5])
local is_sound = since and seen and seen > 0 and string.find(recorded or '', '^%x+$')
  and string.find(origin or '', '^%x+$') and recorded_replid
if not is_sound then
  is_known = is_known or recorded or found[2] or origin or durable or found[5] or recorded_replid
  local is_new = not is_known and ARGV[2] ~= 'strict'
  recorded, since, origin, durable, seen = run_id, is_new and 0 or now, run_id, '0', now
  recorded_replid = replid
  sign = is_new and sign or 'missing'
end

-- The shortest silence of the origins that the caller knows, without the origin of this process.
-- nil if the caller knows no other origin.
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
  sign = forgot and 'restarted' or sign
elseif recorded_replid ~= replid then
  forgot, durable, sign = true, '0', 'promoted'
elseif away then
  -- The caller knows an origin that is not the origin of this process. So the process has none of
  -- that origin's locks. In three cases, the record does not say since when:
  -- - The client that first saw the process did not know that origin. So `since` is 0.
  -- - The process inherited its data from a different origin.
  -- - The process forgot before the caller last heard from that origin. So it is another server.
  forgot = since == 0 or origin ~= run_id or now - since > away
  sign = forgot and 'replaced' or sign
end
if forgot then
  since, origin, seen = now, run_id, now
end
-- The clock may have been set back.
since = math.min(since, now)
seen = math.min(seen, now)
if can_be_durable and is_complete then
  durable = '1'
elseif ARGV[3] ~= '' and not can_be_durable then
  durable = '0'
end
local since_text, seen_text = string.format('%.0f', since), string.format('%.0f', seen)
if found[1] ~= run_id or found[2] ~= since_text or found[3] ~= origin or found[4] ~= durable
    or found[5] ~= seen_text or found[6] ~= replid then
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', since_text, 'origin', origin,
    'durable', durable or '0', 'seen', seen_text, 'replid', replid)
end
-- A strict caller does not trust a client that took this master for new. If the master forgot
-- anything, it forgot that before this record was first written.
if since == 0 and ARGV[2] == 'strict' then
  since_text = seen_text
end
local durability = durable == '1' and 'durable' or 'volatile'
return string.format('%s %.0f %s %s %s %s', since_text, now, run_id, origin, durability, sign)
