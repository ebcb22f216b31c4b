local call, allows, sha1hex = ...
KEYS, ARGV, redis = {}, {}, {
  sha1hex = sha1hex, acl_check_cmd = allows,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
}
function redis.log() end
function redis.replicate_commands()
  return true
end
function redis.error_reply(text)
  text = string.gsub(text, '^%-', '', 1)
  return { err = string.find(text, ' ', 1, true) and text or 'ERR ' .. text }
end
function redis.status_reply(text)
  return { ok = text }
end
function redis.pcall(...)
  local reply, failure = call(...)
  return failure and { err = failure } or reply
end
function redis.call(...)
  local reply, failure = call(...)
  if failure then
    error({ err = failure }, 0)
  end
  return reply
end

local protected = pcall
local function caught(is_done, thrown, ...)
  if not is_done and type(thrown) == 'table' and type(thrown.err) == 'string' then
    thrown = thrown.err
  end
  return is_done, thrown, ...
end
function pcall(...)
  return caught(protected(...))
end

print, dofile, loadfile = nil, nil, nil
setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

return function(script, keys, arguments)
  KEYS, ARGV = keys, arguments
  return protected(script)
end
