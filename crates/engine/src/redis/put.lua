-- One write of a repair, or of another who puts a partition's state in place: the next step of those that
-- have been done. A step that was done is not done again, however late a copy of it comes; and none is
-- done if one before it is missing, because a failover has lost it, or if a later repair has begun.
-- KEYS meta, key   ARGV number of the repair, step, command, what stands behind the key in it
local meta = redis.call('HMGET', KEYS[1], 'repair', 'step')
local done, step = tonumber(meta[2] or '0'), tonumber(ARGV[2])
if meta[1] ~= ARGV[1] or done < step - 1 then
    return redis.error_reply('FENCED another repair has begun since, or a step of this one was lost')
elseif done >= step then
    return 0
end
redis.call('HSET', KEYS[1], 'step', step)
return redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))
