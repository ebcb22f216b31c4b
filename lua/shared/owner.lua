-- shared/owner: describes the owner in the hash of a lock. Prepended to the scripts that use it,
-- after shared/holder.
--
-- returns  the depth, the owner, and the owner as it is shown; nil if the hash is no such lock
local function describe_owner(key, marker)
  local description = describe_holder(key, marker, 0)
  local depth, owner = string.match(description, '^held %S+ (%S+) 0 (.*)$')
  if owner then
    return depth, owner, (string.gsub(owner, '\n', ' '))
  end
end

