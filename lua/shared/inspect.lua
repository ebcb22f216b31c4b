-- shared/inspect: who holds a lock on this master, whatever its kind, and who waits for it. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue of a fair lock, if one is asked for
-- returns  text, a line each: 'KIND LEFT DEPTH OWNER', then the tickets in the queue, at most 1,000.
--          KIND: free, mutex, reentrant, fair or other. LEFT: for how many ms, -1 without a TTL. OWNER: of a
--          mutex, whose token is a secret, its SHA-1.
local kind = redis.call('TYPE', KEYS[1])['ok']
local left = string.format('%.0f', redis.call('PTTL', KEYS[1]))
local holder
if kind == 'none' then
  holder = 'free 0 0 '
elseif kind == 'string' then
  holder = 'mutex ' .. left .. ' 1 ' .. redis.sha1hex(redis.call('GET', KEYS[1]))
elseif kind == 'hash' then
  for _, name in ipairs({ 'reentrant', 'fair' }) do
    local others = held(KEYS[1], 'quorlock:' .. name, 0)
    if others ~= 'kind' then
      holder = string.gsub(others, '^held (%S+ %S+) 0', name .. ' %1')
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
