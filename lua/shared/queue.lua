-- shared/queue: the waiters of a fair lock. Goes in front of the scripts that need it.
--
-- The queue is a sorted set of tickets with one score, so that its order is that of the tickets as strings, the
-- same on every master that has heard the same waiters. A ticket is 16 digits of microseconds, ':' and the
-- owner, whose first 36 characters name its process.

-- The first waiter who is alive, and whether dead ones were swept: those who have not polled for as long as they
-- said they would. KEYS[2] is the queue, KEYS[3] when each of them counts as dead.
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

-- Puts a waiter in the queue, or keeps it in it, for so many ms from now. Whoever calls it has read
-- the queue, so that only the deadlines can still be of another type, and then nothing is written.
local function queue(ticket, now, patience)
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + patience), ticket)
  redis.call('ZADD', KEYS[2], 0, ticket)
  -- A queue that nobody polls vanishes.
  local ttl = 2 * patience
  if redis.call('PTTL', KEYS[2]) < ttl then
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
  end
  if redis.call('PTTL', KEYS[3]) < ttl then
    redis.call('PEXPIRE', KEYS[3], string.format('%.0f', ttl))
  end
end

-- What a command in a step has thrown, as a reply. Servers before version 7 put the line before it.
local function failed(thrown)
  local text = type(thrown) == 'table' and thrown.err or tostring(thrown)
  return redis.error_reply((string.gsub(text, '^@user_script: ?%d+: ', '')))
end

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- Runs what must not keep anybody from giving a lock up, whatever there is in place of a queue or
-- its deadlines. Returns any other error.
local function at_best(step)
  local is_done, thrown = pcall(step)
  local reply = not is_done and failed(thrown)
  return reply and not is_wrong_type(reply) and reply
end

-- Tells a waiter that its turn has come. A hint: who may not publish must still be able to release.
local function call_up(ticket)
  redis.pcall('PUBLISH', 'quorlock:turn:' .. string.sub(ticket, 18, 53), ticket)
end

-- The master's clock in milliseconds and in microseconds. Less than 2^53, so exact.
local function clock()
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return math.floor(micros / 1000), micros
end

