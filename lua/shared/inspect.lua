-- shared/inspect: reports the holder of a lock of any kind on this master, and the waiters of a
-- fair lock. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue; only for a fair lock
-- returns  text: the line 'KIND LEFT DEPTH OWNER', then a line for each of the first 1,000 tickets
--          in the queue
--          KIND: free, mutex, reentrant, fair or other
--          LEFT: milliseconds left, -1 without a TTL
--          OWNER: for a mutex the SHA-1 of its token, because the token is a secret
local kind = redis.call('TYPE', KEYS[1])['ok']
local left = string.format('%.0f', redis.call('PTTL', KEYS[1]))
local holder
if kind == 'none' then
  holder = 'free 0 0 '
elseif kind == 'string' then
  holder = 'mutex ' .. left .. ' 1 ' .. redis.sha1hex(redis.call('GET', KEYS[1]))
elseif kind == 'hash' then
  for _, name in ipairs({ 'reentrant', 'fair' }) do
    local description = describe_holder(KEYS[1], 'quorlock:' .. name, 0)
    if description ~= 'kind' then
      holder = string.gsub(description, '^held (%S+ %S+) 0', name .. ' %1')
      holder = string.gsub(holder, '\n', ' ')
    end
  end
end
local lines = { holder or ('other ' .. left .. ' 0 ') }
if KEYS[2] and redis.call('TYPE', KEYS[2])['ok'] == 'zset' then
  for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999)) do
    lines[#lines + 1] = ticket
  end
end
return table.concat(lines, '\n')
