-- mutex/describe: what shared/any_holder and the scripts that use it know of mutexes.

-- Returns the time of the attempt and the client name in the value of a mutex. Returns '' for a
-- value without a name, because the value of another library may be a secret from the first
-- character to the last.
local function client_in(value)
  local shown = string.match(value, '^' .. string.rep('[0-9a-f]', 40) .. '@([!-~]+)$') or ''
  local client = string.match(shown, '^' .. string.rep('%d', 13) .. '@(.+)$') or shown
  return #client <= 64 and shown or ''
end

return {
  name = 'mutex',
  type = 'string',
  describe = function(key)
    local value = redis.call('GET', key)
    return { { by = value, shown = client_in(value), depth = '1' } }
  end,
  remove = remove_key,
}
