-- Which cell a payment belongs to, over all partitions: "<pool>/<bucket>:<fence>". It is set when nobody
-- has it, or when it is what the caller expects; either way the answer is who has it now. How many
-- were set is counted, so that a state that has gone back is noticed.
-- KEYS meta, payers
-- ARGV payment, cell, what the caller expects ('' for nobody), epoch, count the caller knows
-- Answers { "lost", epoch, count } or { "ok", owner, count }
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'reserved')
local count = tonumber(meta[2] or '0')
if meta[1] ~= ARGV[4] or count < tonumber(ARGV[5]) then
    return { 'lost', meta[1] or '', count }
end
local owner = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if owner == ARGV[3] then
    local fence = tonumber(string.match(owner, ':(%d+)$') or '0') + 1
    owner = ARGV[2] .. ':' .. fence
    redis.call('HSET', KEYS[2], ARGV[1], owner)
    count = redis.call('HINCRBY', KEYS[1], 'reserved', 1)
end
return { 'ok', owner, count }
