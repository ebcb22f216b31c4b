-- shared/queue: the waiters of a fair lock. Prepended to the scripts that use it.
--
-- KEYS[2] is the queue: a sorted set of tickets that all have the same score, so its order is that
-- of the tickets as strings, and is the same on every master that knows the same waiters. KEYS[3]
-- are the deadlines. A ticket is 16 digits of microseconds, ':' and the owner. The first 36
-- characters of the owner identify its process.

-- Returns the first waiter that is alive, and whether dead waiters were removed before it. A waiter
-- is dead when it has not asked again before its deadline.
local function next_waiter(now)
  local is_swept = false
  while true do
    local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    -- A waiter without a deadline is dead, too: nothing else would ever remove it.
    if not head or (tonumber(redis.call('ZSCORE', KEYS[3], head) or 0) > now) then
      return head, is_swept
    end
    redis.call('ZREM', KEYS[2], head)
    redis.call('ZREM', KEYS[3], head)
    is_swept = true
  end
end

-- Adds a waiter to the queue, or keeps it there, with a deadline of now + waiter_timeout. The
-- caller has already read the queue, so only the deadlines can be of the wrong type. They are
-- written first, so that nothing is written if they are of the wrong type.
local function enqueue(ticket, now, waiter_timeout)
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + waiter_timeout), ticket)
  redis.call('ZADD', KEYS[2], 0, ticket)
  -- A queue in which no waiter polls any more expires.
  local ttl = 2 * waiter_timeout
  if redis.call('PTTL', KEYS[2]) < ttl then
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
  end
  if redis.call('PTTL', KEYS[3]) < ttl then
    redis.call('PEXPIRE', KEYS[3], string.format('%.0f', ttl))
  end
end

-- Turns an error thrown by a command into a reply. Servers before version 7 put the script's line
-- number before the error.
local function to_error_reply(thrown)
  local text = type(thrown) == 'table' and thrown.err or tostring(thrown)
  return redis.error_reply((string.gsub(text, '^@user_script: ?%d+: ', '')))
end

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- Runs a step that must not prevent a release, whatever the keys of the queue and the deadlines
-- hold. Returns an error other than WRONGTYPE, or a false value.
local function best_effort(step)
  local is_done, thrown = pcall(step)
  local reply = not is_done and to_error_reply(thrown)
  return reply and not is_wrong_type(reply) and reply
end

-- Tells a waiter that its turn has come. The message is a hint: a user without the right to publish
-- must still be able to release.
local function notify(ticket)
  redis.pcall('PUBLISH', 'quorlock:turn:' .. string.sub(ticket, 18, 53), ticket)
end

-- Returns this master's clock in milliseconds and in microseconds. Both are below 2^53, so they are
-- exact.
local function clock()
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return math.floor(micros / 1000), micros
end

