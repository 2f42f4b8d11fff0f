-- Which pool a payment belongs to, over all partitions: "<pool>:<fence>". It is set when nobody
-- has it, or when it is what the caller expects; either way the answer is who has it now.
-- KEYS payers   ARGV payment, pool, what the caller expects ('' for nobody)
local owner = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if owner ~= ARGV[3] then
    return owner
end
local fence = tonumber(string.match(owner, ':(%d+)$') or '0') + 1
owner = ARGV[2] .. ':' .. fence
redis.call('HSET', KEYS[1], ARGV[1], owner)
return owner
