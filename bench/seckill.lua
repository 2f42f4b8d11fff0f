-- The peer in `cargo xtask bench`: the flash sale as it is usually written for Redis, called
-- once for each claim. Never used by qiang itself.
--
-- KEYS  stock, request counter, user -> request hash, order stream
-- ARGV  user, ttl in seconds (kept for compatibility, unused), now in ms, longest stream
--
-- Answers  {0}                      sold out
--          {1, request, stream id}  granted
--          {2, request}             this user has it already

local stock, counter, owners, orders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local user, now_ms, longest = ARGV[1], ARGV[3], ARGV[4]

local had = redis.call('HGET', owners, user)
if had then
    return { 2, tonumber(had) }
end

local left = tonumber(redis.call('GET', stock) or '0')
if left < 1 then
    return { 0 }
end

redis.call('DECRBY', stock, 1)
local request = redis.call('INCR', counter)
redis.call('HSET', owners, user, request)
local entry = redis.call('XADD', orders, 'MAXLEN', '~', longest, '*',
    'uid', user, 'req_id', request, 'ts', now_ms)

return { 1, request, entry }
