-- dummy/describe: what shared/any_holder and the scripts that use it know of dummy locks. Several
-- owners can hold one: each has a field of the hash.
return {
  name = 'dummy',
  type = 'hash',
  describe = function(key)
    local holders, is_dummy = {}, false
    local fields = redis.call('HGETALL', key)
    for at = 1, #fields, 2 do
      if fields[at] == 'quorlock:dummy' then
        is_dummy = true
      elseif fields[at] ~= 'mode' then
        holders[#holders + 1] = { by = fields[at], shown = fields[at], depth = fields[at + 1] }
      end
    end
    return is_dummy and holders
  end,
  remove = function(key, owner)
    redis.call('HDEL', key, owner)
    -- The fields that are left are no holders.
    if redis.call('HLEN', key) <= 2 then
      redis.call('DEL', key)
    end
  end,
}
