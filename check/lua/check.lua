-- Facts about a server, for a check of the masters. Changes no existing key, and publishes one hint.
--
-- ARGV[1]  the key of an example lock, which no client should hold
-- ARGV[2]  a key that only this lock could have, so it never exists
-- returns  text, lines 'FIELD:VALUE':
--          the fields of INFO
--          'time'           this server's clock in microseconds
--          'origin_age'     how many ms ago the server may have forgotten locks; 'never';
--                           'none' if the origin key is gone; 'another' if the key belongs to
--                           another process
--          'origin_seen'    how many ms ago the origin key was first written
--          'earlier.N'      'FIRST LAST NAME' of programs in the origin key: how many ms ago the first
--                           and the last of them dialled, and the name of its connections
--          'try.NAME'       the error of trying a command
--          'may_listen'     'yes', 'no', or 'no channel' if the user may not publish there either;
--                           missing if the server cannot tell
--
-- The keys are arguments, because they may be on different servers of a cluster.
local lines = {}
local function say(field, value)
  lines[#lines + 1] = field .. ':' .. string.gsub(value, '[\r\n]', ' ')
end

-- Runs a command. Returns the reply, or reports the error and returns nil.
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
  say(field, value)
end
local time = try('TIME', 'TIME')
local now = time and time[1] * 1000000 + time[2]
if now then
  say('time', string.format('%.0f', now))
end
local function ago(millis)
  return string.format('%.0f', math.max(math.floor(now / 1000) - millis, 0))
end

local origin = try('origin', 'HMGET', 'quorlock:origin', 'run_id', 'since', 'seen')
local run_id = string.match(info, 'run_id:(%x+)')
if origin and run_id and now then
  local since, seen = tonumber(origin[2] or ''), tonumber(origin[3] or '')
  if origin[1] and origin[1] ~= run_id then
    say('origin_age', 'another')
  elseif not origin[1] or not since then
    say('origin_age', 'none')
  else
    say('origin_age', since == 0 and 'never' or ago(since))
    if seen then
      say('origin_seen', ago(seen))
    end
  end
  for at = 0, 31 do
    local entry = redis.pcall('HMGET', 'quorlock:origin', 'lists.' .. at)[1] or ''
    local first, last, seen, name = string.match(entry, '^(%d+) (%d+) (%d+) (%S+)$')
    if name then
      say('earlier.' .. at, table.concat({ ago(first), ago(last), ago(seen), name }, ' '))
    end
  end
end

-- A server checks rights before arguments. So commands that write get wrong arguments: they fail in
-- any case, but the error tells whether the user has the right.
try('origin_write', 'HSET', 'quorlock:origin', 'one', '1', 'without a value')
local key = ARGV[1]
for _, words in ipairs({
  { 'SET', key, 'x', 'WRONG' }, { 'PEXPIRE', key, 'wrong' }, { 'HSET', key, 'one', '1', 'without a value' },
  { 'ZADD', key, 'wrong', 'x' }, { 'GET', key }, { 'TYPE', key }, { 'HMGET', key, 'x' }, { 'HLEN', key },
  { 'HGETALL', key }, { 'ZRANGE', key, '0', '0' }, { 'ZRANK', key, 'x' }, { 'ZSCORE', key, 'x' },
  { 'ZLEXCOUNT', key, '-', '-' }, { 'PTTL', key }, { 'EXISTS', key },
  -- No arguments are wrong for these commands, so they would write, and another program may have
  -- the key of the example lock.
  { 'DEL', ARGV[2] }, { 'HDEL', ARGV[2], 'x' }, { 'ZREM', ARGV[2], 'x' },
}) do
  try(words[1], unpack(words))
end
local channel = 'redisson_lock__channel:{' .. key .. '}'
try('PUBLISH', 'PUBLISH', channel, '0')
-- Only Redis 7 and later can tell this right.
if redis.acl_check_cmd then
  -- A server without the command raises an error.
  local function allows(...)
    local known, allowed = pcall(redis.acl_check_cmd, ...)
    return known and allowed
  end
  local turn = 'quorlock:turn:' .. key
  local may_listen = allows('SUBSCRIBE', turn) and 'yes'
  say('may_listen', may_listen or allows('PUBLISH', turn, '0') and 'no' or 'no channel')
end
return table.concat(lines, '\n')
