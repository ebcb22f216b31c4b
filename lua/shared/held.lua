-- shared/held: what a master tells others of a lock that is held. Goes in front of the scripts that need it.
--
-- returns  'held LEFT DEPTH PLACE OWNER'  LEFT: for how many ms, -1 without a TTL; PLACE: of who asks in the
--                                         queue, 1 is next, 0 is not in it
--          'kind'                         held as another kind of lock
local function held(key, marker, place)
  local owner, depth, is_marked, has_mode
  -- A lock of ours has three fields, and one of Redisson's has one. Do not read anything larger.
  if redis.call('HLEN', key) > 3 then
    return 'kind'
  end
  local facts = redis.call('HGETALL', key)
  for at = 1, #facts, 2 do
    if facts[at] == marker then
      is_marked = true
    elseif facts[at] == 'mode' and facts[at + 1] == 'quorlock' then
      has_mode = true
    elseif string.sub(facts[at], 1, 9) == 'quorlock:' or owner then
      return 'kind'
    else
      owner, depth = facts[at], tonumber(facts[at + 1])
    end
  end
  -- Redisson's locks have no marker, and are reentrant ones.
  -- What is no count is no lock of ours.
  local needs_marker = has_mode or marker == 'quorlock:fair'
  if not owner or not depth or not (depth >= 0 and depth < 2 ^ 53) or (needs_marker and not is_marked) then
    return 'kind'
  end
  local left = redis.call('PTTL', key)
  return string.format('held %.0f %.0f %.0f ', left, depth, place) .. owner
end

