-- shared/look: notes that a program is still connected, and tells which lists of masters other
-- programs use. The script is sent once a minute, over a connection of its own.
--
-- KEYS[1]  the origin record, a hash: see shared/origin
-- ARGV[1]  the name of the program's connections
-- returns  text 'NAME NAME ..': see shared/programs
--
-- Safe to run twice or late. It says nothing about restarts, and changes nothing that tells of them.
local time = redis.call('TIME')
local told = {}
-- A master that is full still tells.
pcall(note_program, told, KEYS[1], ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000), false)
return table.concat(told, ' ')
