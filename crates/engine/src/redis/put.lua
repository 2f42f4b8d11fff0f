-- One write of a repair, or of another who puts a partition's state in place. It has an effect only while
-- no later one has begun.
-- KEYS meta, key   ARGV number of the repair, command, what stands behind the key in it
if redis.call('HGET', KEYS[1], 'repair') ~= ARGV[1] then
    return redis.error_reply('FENCED another repair has begun since')
end
return redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
