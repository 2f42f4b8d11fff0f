-- Takes the epoch from a partition, so that nothing is decided in it until it has one again, and notes
-- who did: whoever began before has no say any more.
-- KEYS meta   ARGV number of the repair
if tonumber(redis.call('HGET', KEYS[1], 'repair') or '0') > tonumber(ARGV[1]) then
    return redis.error_reply('FENCED another repair has begun since')
end
redis.call('HSET', KEYS[1], 'repair', ARGV[1])
return redis.call('HDEL', KEYS[1], 'epoch')
