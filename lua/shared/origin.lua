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
--          'lists.0' to 'lists.31'  the programs of the last 7 days, one field for all programs with
--                    the same lists, keys and longest TTL: 'FIRST LAST NAME', their first and last
--                    dial in ms of this master's clock, and the name of the last one. LAST may be
--                    a minute old, unless others began after it. A new one takes the field with
--                    the oldest LAST.
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
--          NAME: the names of programs with other settings that dialled in the last hour and longest
--          TTL, not before the first program with the settings of the caller. '?' is before a NAME
--          if no other program with the settings of the caller came since the first with NAME.
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
local MINUTE, HOUR, WEEK, MOST = 60000, 3600000, 604800000, 200
local function note_program()
  local name = ARGV[2]
  local settings, max_ttl = string.match(name, '^(quorlock:%x+:%x+:(%d+):)')
  if not settings then
    return
  end
  local fields = {}
  for at = 0, 31 do
    fields[at + 1] = 'lists.' .. at
  end
  local own, oldest, words, newest = nil, { last = now }, {}, 0
  for at, text in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
    local first, last, other = string.match(text or '', '^(%d+) (%d+) (%S+)$')
    if #(other or '') > MOST or tonumber(first or 0) > tonumber(last or 0) then
      first, last = nil, nil
    end
    local entry = { field = fields[at], first = tonumber(first or now), last = tonumber(last or 0) }
    -- The clock may have been set back.
    if entry.last > now or now - entry.last > WEEK then
      entry.last = 0
      if text and text ~= '' then
        words[#words + 1], words[#words + 2] = entry.field, ''
      end
    elseif string.sub(other, 1, #settings) == settings then
      own = entry
    else
      newest = math.max(newest, entry.first)
      entry.name = now - entry.last <= HOUR + max_ttl and other
    end
    fields[at] = entry
    oldest = entry.last < oldest.last and entry or oldest
  end
  for _, entry in ipairs(fields) do
    if entry.name and (not own or entry.last >= own.first) then
      local is_after = own and own.last >= entry.first
      reply[#reply + 1] = (is_after and '' or '?') .. entry.name
    end
  end
  -- After a program with other settings has begun, it counts that this one still comes.
  if not own or now - own.last > MINUTE or own.last < newest then
    local entry = own or oldest
    words[#words + 1] = entry.field
    words[#words + 1] = string.format('%.0f %.0f %s', own and own.first or now, now, name)
    redis.call('HSET', KEYS[1], unpack(words))
  end
end
-- Locks do not depend on it: a master that is full is dialled all the same.
pcall(note_program)
return table.concat(reply, ' ')
