-- shared/check: what a check of the masters' settings goes by. Changes nothing.
--
-- returns  text, lines 'FIELD:VALUE' of INFO, and 'time:MICROS', this master's clock
local wanted = {
  run_id = true, redis_version = true, redis_mode = true, role = true, master_replid = true,
  connected_slaves = true, maxmemory = true, maxmemory_policy = true, evicted_keys = true, loading = true,
  async_loading = true, aof_enabled = true, aof_last_write_status = true, rdb_last_bgsave_status = true,
  connected_clients = true, maxclients = true,
}
local lines = {}
for field, value in string.gmatch(redis.call('INFO'), '([%w_]+):([^\r\n]*)') do
  if wanted[field] then
    lines[#lines + 1] = field .. ':' .. value
  end
end
local time = redis.call('TIME')
lines[#lines + 1] = string.format('time:%.0f', time[1] * 1000000 + time[2])
return table.concat(lines, '\n')
