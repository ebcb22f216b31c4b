-- shared/rights: prepended to the first acquisitions of each kind of lock by a coordinator. Tries
-- all commands that acquire, extend and release the lock. Otherwise, a user without a right could
-- take a lock, and then neither keep nor release it. Changes nothing.
--
-- KEYS[1]  the lock
-- `needed` the commands, separated by spaces
-- returns  error 'NOPERM cannot run NAMES ..': not granted, because a right to these commands, or
--                the commands themselves, are missing
--          error OOM: not granted, because the server is out of memory
--
-- Safe to run twice or late, because it changes nothing.
do
  -- A server checks rights before arguments. So the commands that write get arguments with which
  -- they fail, or the name of something that nobody has.
  local arguments = {
    HDEL = { 'quorlock:none' }, HMGET = { 'x' }, HSET = { 'one', '1', 'without a value' },
    PEXPIRE = { 'wrong' }, SET = { 'x', 'WRONG' }, ZADD = { 'wrong', 'x' }, ZLEXCOUNT = { '-', '-' },
    ZRANGE = { '0', '0' }, ZRANK = { 'x' }, ZREM = { 'quorlock:none' }, ZSCORE = { 'x' },
  }
  -- These would read or delete the whole value, perhaps that of another program.
  local whole = { DEL = true, GET = true, HGETALL = true }
  local out_of_memory
  local denials = { "can't run", "can't access", 'o permissions', 'nknown', 'not allowed from' }

  local function is_denied(...)
    local reply = redis.pcall(...)
    local err = type(reply) == 'table' and reply.err or ''
    if string.find(err, 'OOM ', 1, true) then
      out_of_memory = reply
    end
    for _, words in ipairs(denials) do
      if string.find(err, words, 1, true) then
        return true
      end
    end
    return false
  end

  -- Only Redis 7 and later can tell a right without a try.
  local function is_told_no(...)
    local is_known, may = pcall(redis.acl_check_cmd, ...)
    return not (is_known and may)
  end

  local missing = {}
  for command in string.gmatch(needed, '%S+') do
    local is_missing
    if command == 'EVALSHA' then
      is_missing = redis.acl_check_cmd and is_told_no(command, '', '0') -- no script may call it
    elseif command == 'TIME' then
      is_missing = is_denied(command)
    elseif not whole[command] then
      is_missing = is_denied(command, KEYS[1], unpack(arguments[command] or {}))
    elseif redis.acl_check_cmd then
      is_missing = is_told_no(command, KEYS[1])
    elseif redis.pcall('PTTL', KEYS[1]) == -2 then
      is_missing = is_denied(command, KEYS[1]) -- no key has this name
    end
    if is_missing then
      missing[#missing + 1] = command
    end
  end
  if #missing > 0 then
    return redis.error_reply('NOPERM cannot run ' .. table.concat(missing, ', ') .. ' in a script')
  end
  -- After a try to write, a server no longer refuses that for lack of memory.
  if out_of_memory then
    return out_of_memory
  end
end
