-- shared/origin: finds out whether this master may have forgotten locks since it was last seen, and
-- which lists of masters other programs use. The script is sent on every dial, before the connection
-- serves anything else.
--
-- KEYS[1]  the origin record, a hash:
--          'run_id'  the run id of the process that was here last
--          'since'   when this master was first seen to have forgotten its locks, in ms of its
--                    clock; 0: never
--          'seen'    when this record was first written, in ms of this master's clock
--          'replid'  the replication id of the process
--          'lists.0' to 'lists.31'  see shared/programs
-- ARGV[1]  'strict': a master without a record counts as having forgotten its locks. If other
--          callers took it for new, it counts as having forgotten them when it was first seen.
--          'observed': a master without a record counts as new, unless the caller knew it.
-- ARGV[2]  the name of the connection. A program that takes no lock gives '', and leaves nothing
-- ARGV[3], ARGV[4], and so on  two arguments for each process that the caller has met here: its
--          run id, and the ms since the caller last heard from it
-- returns  text  'SINCE NOW RUN_ID SIGN NAME NAME ..'
--          SINCE and NOW: in ms of this master's clock
--          SIGN: how this run found that this master forgot its locks: 'missing', 'restarted',
--          'promoted' or 'replaced'; 'earlier' if another run found it
--          NAME: other programs: see shared/programs
--
-- Safe to run twice or late: the second run finds what the first one wrote. The run id tells
-- whether the master has restarted. The uptime cannot tell it, because a server computes the uptime
-- from its wall clock. A record that comes back from a snapshot or a log has the old run id. A
-- malformed record counts as missing. The caller then counts as having known the master.
--
-- The replication id tells whether the process was a replica meanwhile, and may have replaced its
-- data by that of another server. A process that is promoted always gets a new one. Other events,
-- such as the first replica of a master, also change the id, and count as a loss, too. A rule that
-- tells them apart by the earlier id and its offset would miss losses.
local info = '\n' .. redis.call('INFO')
local run_id = string.match(info, '\nrun_id:(%x+)')
if not run_id then
  return redis.error_reply('ERR its INFO has no run_id')
end
local replid = string.match(info, '\nmaster_replid:(%x+)') or ''
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

local is_known = ARGV[3]
local sign = 'earlier'
local found = redis.pcall('HMGET', KEYS[1], 'run_id', 'since', 'seen', 'replid')
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
local recorded, recorded_replid = found[1], found[4]
local since, seen = parse_digits(found[2]), parse_digits(found[3])
local is_sound = since and seen and seen > 0 and string.find(recorded or '', '^%x+$')
  and recorded_replid
if not is_sound then
  is_known = is_known or recorded or found[2] or found[3] or recorded_replid
  local is_new = not is_known and ARGV[1] ~= 'strict'
  recorded, since, seen, recorded_replid = run_id, is_new and 0 or now, now, replid
  sign = is_new and sign or 'missing'
end

-- The time since the caller last heard from any other process here. nil if it has met no other.
local away
for at = 3, #ARGV, 2 do
  if ARGV[at] ~= run_id then
    away = math.min(away or math.huge, tonumber(ARGV[at + 1]))
  end
end
local forgot = false
if recorded ~= run_id then
  forgot, sign = true, 'restarted'
elseif recorded_replid ~= replid then
  forgot, sign = true, 'promoted'
elseif away then
  -- This process has none of the locks of the other one. In two cases, the record does not say
  -- since when:
  -- - The client that first saw this process did not know the other one. So `since` is 0.
  -- - This process forgot before the caller last heard from the other one. So they are two servers.
  forgot = since == 0 or now - since > away
  sign = forgot and 'replaced' or sign
end
if forgot then
  since, seen = now, now
end
-- The clock may have been set back.
since = math.min(since, now)
seen = math.min(seen, now)
local since_text, seen_text = string.format('%.0f', since), string.format('%.0f', seen)
if found[1] ~= run_id or found[2] ~= since_text or found[3] ~= seen_text or found[4] ~= replid then
  redis.call('HSET', KEYS[1], 'run_id', run_id, 'since', since_text, 'seen', seen_text,
    'replid', replid)
end
-- A strict caller does not trust a client that took this master for new. If the master forgot
-- anything, it forgot that before this record was first written.
if since == 0 and ARGV[1] == 'strict' then
  since_text = seen_text
end

local reply = { since_text, string.format('%.0f', now), run_id, sign }
-- Locks do not depend on it: a master that is full is dialled all the same.
pcall(note_program, reply, KEYS[1], ARGV[2], now, true)
return table.concat(reply, ' ')
