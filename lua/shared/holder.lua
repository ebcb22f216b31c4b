-- shared/holder: describes the holder of a lock to another client. Prepended to the scripts that
-- use it.
--
-- returns  'held LEFT DEPTH POSITION OWNER'
--                  LEFT: milliseconds left, -1 without a TTL
--                  POSITION: the caller's position in the queue, starting at 1; 0 if the caller is
--                  not queued
--          'kind'  the key holds another kind of lock
local function describe_holder(key, marker, position)
  local owner, depth, is_marked, has_mode
  -- A lock of this crate has at most three fields, and a lock of Redisson's has one. A larger hash
  -- is not a lock of either, so it is not read.
  if redis.call('HLEN', key) > 3 then
    return 'kind'
  end
  local fields = redis.call('HGETALL', key)
  for at = 1, #fields, 2 do
    if fields[at] == marker then
      is_marked = true
    elseif fields[at] == 'mode' and fields[at + 1] == 'quorlock' then
      has_mode = true
    elseif string.sub(fields[at], 1, 9) == 'quorlock:' or owner then
      return 'kind'
    else
      owner, depth = fields[at], tonumber(fields[at + 1])
    end
  end
  -- A lock of this crate has a marker and a mode. A lock of Redisson's has neither, and counts as a
  -- reentrant lock. The depth of a lock must be a count.
  local is_lock = is_marked == has_mode and (is_marked or marker == 'quorlock:reentrant')
  if not owner or not depth or not (depth >= 0 and depth < 2 ^ 53)
      or not is_lock then
    return 'kind'
  end
  local left = redis.call('PTTL', key)
  return string.format('held %.0f %.0f %.0f ', left, depth, position) .. owner
end

