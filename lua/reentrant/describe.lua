-- reentrant/describe: what shared/any_holder and the scripts that use it know of reentrant locks.
return {
  name = 'reentrant',
  type = 'hash',
  describe = function(key)
    return describe_owner(key, 'quorlock:reentrant')
  end,
  remove = remove_key,
  -- The waiters of Redisson listen on a channel.
  on_break = function(kind, channel)
    if kind == 'reentrant' then
      redis.pcall('PUBLISH', channel, '0')
    end
  end,
}
