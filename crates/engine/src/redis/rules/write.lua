-- The call itself: what is overdue first, then the commands, then everything they changed.

-- Everything the claims of this call look up, in two questions.
local function look_ahead()
    local names, keys = {}, {}
    for i = 1, #commands do
        local c = commands[i]
        if c[1] == 'claim' then
            names[#names + 1] = rules.by_identity == 1 and c[3] or c[2]
            if c[4] ~= '' then
                keys[#keys + 1] = request_key(c[2], c[4])
            end
        end
    end
    if #names > 1 then
        local found = redis.call('HMGET', BUYERS, unpack(names))
        for i = 1, #names do
            if buyers[names[i]] ~= nil then
                -- What was overdue has changed it already.
            elseif found[i] then
                local latest, used = string.match(found[i], '^(%d+):(%d+)$')
                buyers[names[i]] = { tonumber(latest), tonumber(used) }
            else
                buyers[names[i]] = false
            end
        end
    end
    if #keys > 1 then
        local found = redis.call('HMGET', REQUESTS, unpack(keys))
        for i = 1, #keys do
            requests[keys[i]] = tonumber(found[i] or false) or false
        end
    end
end

local function write_map(key, map)
    local args, count = {}, 0
    for field, value in pairs(map) do
        args[count + 1], args[count + 2] = field, value
        count = count + 2
        if count == 2000 then
            redis.call('HSET', key, unpack(args))
            args, count = {}, 0
        end
    end
    if count > 0 then
        redis.call('HSET', key, unpack(args))
    end
end

local function write_due()
    local args, gone = {}, {}
    for member, at in pairs(added_due) do
        args[#args + 1], args[#args + 2] = at, member
    end
    for member in pairs(removed_due) do
        gone[#gone + 1] = member
    end
    if #gone > 0 then
        redis.call('ZREM', DUE, unpack(gone))
    end
    if #args > 0 then
        redis.call('ZADD', DUE, unpack(args))
    end
    local first = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
    local cell = pool_id .. '/' .. rules.bucket
    if first[2] then
        redis.call('ZADD', DUES, first[2], cell)
    else
        redis.call('ZREM', DUES, cell)
    end
end

local function write_all()
    assert(state.available >= 0
        and state.available + state.held + state.ordered + state.paid == state.share
        or state.cleared == 1, 'available and taken units do not add up')
    seq = seq + #events
    redis.call('HSET', META, 'seq', seq, 'at', now)
    redis.call('HSET', POOL, 'state', pack({ state.version, state.total, state.share,
        state.available, state.held, state.ordered, state.paid, state.claims, state.payments,
        state.opened_at, state.closed_at, state.cleared, state.fresh, state.arrived }))
    write_map(CLAIMS, dirty_claims)
    write_map(BUYERS, dirty_buyers)
    write_map(REQUESTS, dirty_requests)
    write_map(PAYMENTS, dirty_payments)
    if next(added_due) or next(removed_due) or state.cleared == 1 then
        write_due()
    end
    if #events > 0 then
        redis.call('XADD', LOG, seq .. '-0', 'pool', pool_id, 'count', #events,
            'events', table.concat(events))
    end
end

local answer = { 'again' }
local overdue = {}
if state and state.cleared == 0 then
    overdue = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, MAX_RELEASED)
    for _, member in ipairs(overdue) do
        local claim = claim_of(tonumber(member))
        release(claim, claim[C_STATE] == HELD and HOLD_EXPIRED or PAY_EXPIRED)
    end
end
if #overdue < MAX_RELEASED then
    if state then
        look_ahead()
    end
    local replies = {}
    for i = 1, #commands do
        replies[i] = decide[commands[i][1]](commands[i])
    end
    local grants, available = {}, 0
    if state then
        local first, hold_until, pay_by = first_state()
        grants = { first, hold_until, pay_by, rules.by_identity, rules.closes, state.claims,
            rules.buckets }
        available = state.available
    end
    answer = { 'ok', seq, now, -1, available, grants, replies }
end
if changed then
    write_all()
    answer[2] = seq
end
-- Whoever remembers that nothing is left must know when that may change.
if state and state.available == 0 and answer[1] == 'ok' then
    answer[4] = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '-1')
end
local packed = pack(answer)
-- A call that is made again leaves a trace in any case, so that a late copy of it, which may find
-- other things than it did, has no effect.
if changed or keep then
    redis.call('SET', LANE, pack({ number, packed }), 'PX', KEEP_ANSWER_MS)
end
return packed
