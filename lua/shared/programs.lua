-- shared/programs: tells which lists of masters the programs use that were here lately.
--
-- The fields 'lists.0' to 'lists.31' of the origin record stand for the programs of the last 7 days,
-- one field for all programs with the same lists, keys and longest TTL: 'FIRST LAST SEEN NAME', in
-- ms of this master's clock.
--   FIRST and LAST: their first and last dial
--   SEEN: when one of them was last connected
--   NAME: the name of that one
-- SEEN may be a minute old. A new program takes the field with the oldest SEEN.
local MINUTE, HOUR, WEEK, MOST = 60000, 3600000, 604800000, 200

-- Notes in the origin record `key` that the program with this `name` is connected `now`, or that it
-- `dials`. Appends to `told` the names of programs with other settings that are here: seen in the
-- last minute. For a caller with new settings, they were also seen in the longest TTL, which is the
-- wait between two lists in a change of the masters.
-- Also appends those that were seen in the last hour and longest TTL, and were here together with
-- programs with the settings of the caller: between their first dial and when they were last seen.
local function note_program(told, key, name, now, dials)
  local settings, max_ttl = string.match(name, '^(quorlock:%x+:%x+:(%d+):)')
  if not settings then
    return
  end
  local fields = {}
  for at = 0, 31 do
    fields[at + 1] = 'lists.' .. at
  end
  local own, oldest, words = nil, { seen = now }, {}
  for at, text in ipairs(redis.call('HMGET', key, unpack(fields))) do
    local first, last, seen, other = string.match(text or '', '^(%d+) (%d+) (%d+) (%S+)$')
    first, last, seen = tonumber(first or 0), tonumber(last or 0), tonumber(seen or 0)
    if #(other or '') > MOST or math.max(first, last) > seen then
      seen = 0
    end
    local entry = { field = fields[at], first = first, last = last, seen = seen }
    -- The clock may have been set back.
    if entry.seen > now or now - entry.seen > WEEK then
      entry.seen = 0
      if text and text ~= '' then
        words[#words + 1], words[#words + 2] = entry.field, ''
      end
    elseif string.sub(other, 1, #settings) == settings then
      own = entry
    else
      entry.name = now - entry.seen <= HOUR + max_ttl and other
    end
    fields[at] = entry
    oldest = entry.seen < oldest.seen and entry or oldest
  end
  -- Programs like the caller that come again are back from a change, or were forgotten in it.
  local here = own and MINUTE or math.min(MINUTE, max_ttl)
  for _, entry in ipairs(fields) do
    local was_beside = own and entry.seen >= own.first and own.seen >= entry.first
    if entry.name and (was_beside or now - entry.seen <= here) then
      told[#told + 1] = entry.name
    end
  end
  if dials or not own or now - own.seen > MINUTE / 2 then
    local entry = own or oldest
    local last = own and not dials and own.last or now
    words[#words + 1] = entry.field
    words[#words + 1] = string.format('%.0f %.0f %.0f %s', own and own.first or now, last, now, name)
    redis.call('HSET', key, unpack(words))
  end
end

