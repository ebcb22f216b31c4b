-- shared/check: collects the facts that a check of the masters judges. Changes nothing.
--
-- ARGV[1]  the key of a lock that is not in use. The keys are arguments and not KEYS because in a
--          cluster they may be on different servers
-- ARGV[2]  the key of its queue
-- ARGV[3]  the key of its deadlines
-- ARGV[4]  the key of its counter
-- returns  text, lines 'FIELD:VALUE':
--          fields of INFO
--          'time'           this master's clock in microseconds
--          'guard_age'      how many ms ago this master may have forgotten locks; 'never'; 'none'
--                           when the guard is missing; 'another' when another process wrote it
--          'guard_seen'     how many ms ago the guard was first written
--          'guard_durable'  '1' or '0': whether a restart of it is trusted (see shared/guard)
--          'try.NAME'       the error of a command or a key that was tried
--          'may_eval', 'may_listen'  'yes' or 'no', on servers that can tell
local wanted = {
  run_id = true, redis_version = true, redis_mode = true, server_mode = true, role = true,
  master_replid = true, master_replid2 = true, connected_slaves = true, maxmemory = true,
  maxmemory_policy = true, evicted_keys = true, loading = true, async_loading = true,
  aof_enabled = true, aof_last_write_status = true, rdb_last_bgsave_status = true,
  connected_clients = true, maxclients = true, monotonic_clock = true, dragonfly_version = true,
  crdt_config_version = true,
}
local lines = {}
local function say(field, value)
  lines[#lines + 1] = field .. ':' .. string.gsub(value, '[\r\n]', ' ')
end

-- Runs a command and returns its reply. Reports an error and returns nil.
local function try(name, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    say('try.' .. name, reply.err)
    return nil
  end
  return reply
end

local info = try('INFO', 'INFO') or ''
for field, value in string.gmatch(info, '([%w_]+):([^\r\n]*)') do
  if wanted[field] then
    say(field, value)
  end
end
local time = try('TIME', 'TIME')
local now = time and time[1] * 1000000 + time[2]
if now then
  say('time', string.format('%.0f', now))
end

local function say_age(field, since)
  say(field, string.format('%.0f', math.max(math.floor(now / 1000) - since, 0)))
end
local guard = try('guard', 'HMGET', 'quorlock:guard', 'run_id', 'since', 'durable', 'seen')
local run_id = string.match(info, 'run_id:(%x+)')
if guard and run_id and now then
  local since = tonumber(guard[2] or '')
  if guard[1] and guard[1] ~= run_id then
    say('guard_age', 'another')
  elseif not guard[1] or not since then
    say('guard_age', 'none')
  else
    if since == 0 then
      say('guard_age', 'never')
    else
      say_age('guard_age', since)
    end
    local seen = tonumber(guard[4] or '')
    if seen then
      say_age('guard_seen', seen)
    end
    say('guard_durable', guard[3] == '1' and '1' or '0')
  end
end

-- A server refuses a forbidden command before it looks at the arguments. Commands that would write
-- are therefore tried with wrong arguments.
local key = ARGV[1]
try('SET', 'SET', key, 'x', 'WRONG')
try('PEXPIRE', 'PEXPIRE', key, 'wrong')
try('HSET', 'HSET', key, 'one', '1', 'without a value')
try('ZADD', 'ZADD', key, 'wrong', 'x')
try('GET', 'GET', key)
local left = try('PTTL', 'PTTL', key)
try('TYPE', 'TYPE', key)
try('HMGET', 'HMGET', key, 'x')
try('HLEN', 'HLEN', key)
try('HGETALL', 'HGETALL', key)
try('ZRANGE', 'ZRANGE', key, '0', '0')
try('ZRANK', 'ZRANK', key, 'x')
try('ZSCORE', 'ZSCORE', key, 'x')
-- These cannot be given wrong arguments. A key of that name may exist, and is left alone, also
-- where the user lacks the right to look for it.
if try('EXISTS', 'EXISTS', key) == 0 or left == -2 then
  try('DEL', 'DEL', key)
  try('HDEL', 'HDEL', key, 'x')
  try('ZREM', 'ZREM', key, 'x')
end
try('queue', 'ZSCORE', ARGV[2], 'x')
try('deadlines', 'ZSCORE', ARGV[3], 'x')
try('fence', 'GET', ARGV[4])
local channel = 'quorlock:wake:{' .. key .. '}'
try('PUBLISH', 'PUBLISH', channel, '0')
-- Redis 7 and later.
if redis.acl_check_cmd then
  say('may_eval', redis.acl_check_cmd('EVAL', 'return 1', '0') and 'yes' or 'no')
  say('may_listen', redis.acl_check_cmd('SUBSCRIBE', channel) and 'yes' or 'no')
end
return table.concat(lines, '\n')
