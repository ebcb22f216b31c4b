-- shared/queue: the queues of waiters. Prepended to the scripts that use it.
--
-- A queue is a sorted set of tickets. All tickets have the same score, so they are sorted as
-- strings. The order is the same on every master that knows the same waiters. KEYS[3] holds the
-- deadlines. A ticket is 16 digits of microseconds, ':' and the owner. The first 36
-- characters of the owner are the UUID of its coordinator.

-- Returns the first waiter that is alive, and whether dead waiters were removed before it. A waiter
-- is dead if its deadline has passed. A waiter that asks again gets a new deadline.
local function next_waiter(queue, now)
  local is_swept = false
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    -- A waiter without a deadline is dead, too. Nothing but this function would remove it.
    if not head or (tonumber(redis.call('ZSCORE', KEYS[3], head) or 0) > now) then
      return head, is_swept
    end
    redis.call('ZREM', queue, head)
    redis.call('ZREM', KEYS[3], head)
    is_swept = true
  end
end

-- Adds a waiter to the queue, or keeps it there, with a deadline of now + silent_waiter_timeout. The
-- caller has read the queue, so the queue is of the right type. The deadlines may be of the wrong
-- type. They are written first, so an error leaves everything unchanged.
local function enqueue(queue, ticket, now, silent_waiter_timeout)
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + silent_waiter_timeout), ticket)
  redis.call('ZADD', queue, 0, ticket)
  -- A queue expires when no waiter polls any more.
  local ttl = 2 * silent_waiter_timeout
  if redis.call('PTTL', queue) < ttl then
    redis.call('PEXPIRE', queue, string.format('%.0f', ttl))
  end
  if redis.call('PTTL', KEYS[3]) < ttl then
    redis.call('PEXPIRE', KEYS[3], string.format('%.0f', ttl))
  end
end

-- Turns an error that a command has thrown into an error reply. Servers before version 7 put the
-- line number of the script before the error. This function removes that number.
local function to_error_reply(thrown)
  local text = type(thrown) == 'table' and thrown.err or tostring(thrown)
  return redis.error_reply((string.gsub(text, '^@user_script: ?%d+: ', '')))
end

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- Runs a step on the queue and the deadlines. The type of these keys must not prevent a release, so
-- a WRONGTYPE error is ignored. Returns another error as a reply, and otherwise a false value.
local function best_effort(step)
  local is_done, thrown = pcall(step)
  local reply = not is_done and to_error_reply(thrown)
  return reply and not is_wrong_type(reply) and reply
end

-- Tells a waiter that its turn has come. The message is only a hint, so an error is ignored. A user
-- without the right to publish must still be able to release.
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

