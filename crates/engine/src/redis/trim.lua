-- Drops what every consumer has committed from the log of a partition, and remembers how far.
-- KEYS meta, log   ARGV position
local through = tonumber(ARGV[1])
if through > tonumber(redis.call('HGET', KEYS[1], 'trimmed') or '0')
    and through <= tonumber(redis.call('HGET', KEYS[1], 'seq') or '0') then
    redis.call('XTRIM', KEYS[2], 'MINID', '=', (through + 1) .. '-0')
    redis.call('HSET', KEYS[1], 'trimmed', through)
end
