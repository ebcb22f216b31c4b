-- dummy/describe: what shared/any_holder and the scripts that use it know of dummy locks.
return {
  name = 'dummy',
  type = 'hash',
  describe = function(key)
    return describe_owner(key, 'quorlock:dummy')
  end,
}
