-- shared/owner: what describe.lua says of a lock whose hash has one owner. Prepended to the scripts
-- that use it, after shared/holder.

-- Returns a list with the owner; nil if the hash is no such lock.
local function describe_owner(key, marker)
  local description = describe_holder(key, marker, 0)
  local depth, owner = string.match(description, '^held %S+ (%S+) 0 (.*)$')
  if owner then
    return { { by = owner, shown = (string.gsub(owner, '\n', ' ')), depth = depth } }
  end
end

-- Removes the holder of a lock that only one can hold.
local function remove_key(key)
  redis.call('DEL', key)
end

