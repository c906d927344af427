-- Sets the ids of a stream back to the clock of Redis, and deletes the entries with an id more than a day ahead, which were read.
-- Redis refuses while one of them was not: run the script again once it is read.
-- KEYS: stream. ARGV: the last entry that was read; the consumer group of a stream that has one.
local stream, read, group = KEYS[1], ARGV[1], ARGV[2]
local seconds = tonumber(redis.call('TIME')[1])
local id = string.format('%.0f-0', (seconds + 1) * 1000)
if group and redis.call('XPENDING', stream, group)[1] > 0 then
  return redis.error_reply('ERR entries of the group are not acknowledged yet')
end
local ahead = string.format('%.0f', (seconds + 86400) * 1000)
for _, entry in ipairs(redis.call('XRANGE', stream, ahead, read, 'COUNT', 1000)) do
  redis.call('XDEL', stream, entry[1])
end
redis.call('XSETID', stream, id)
if group then redis.call('XGROUP', 'SETID', stream, group, id) end
return id
