-- Takes the epoch from a partition, so that nothing is decided in it until it has one again, and notes
-- who did: whoever began before has no say any more. A late copy of it does nothing.
-- KEYS meta   ARGV number of the repair
local last, number = tonumber(redis.call('HGET', KEYS[1], 'repair') or '0'), tonumber(ARGV[1])
if last > number then
    return redis.error_reply('FENCED another repair has begun since')
elseif last < number then
    redis.call('HSET', KEYS[1], 'repair', ARGV[1], 'step', 0)
    redis.call('HDEL', KEYS[1], 'epoch')
end
return 1
