-- The call itself: what is overdue first, then the commands, then everything they changed.

-- Pairs written by one command; what a script may hand over at once is bounded.
local PAIRS = 1000
-- Values of one entry of the log.
local PARTS = 64

local function write_list(command, key, list)
    for i = 1, #list, PAIRS * 2 do
        write(command, key, unpack(list, i, math.min(i + PAIRS * 2 - 1, #list)))
    end
end

local function write_map(key, map)
    local list, last = {}, 0
    for field, value in pairs(map) do
        list[last + 1], list[last + 2] = field, value
        last = last + 2
    end
    write_list('HSET', key, list)
end

-- How many claims were released because their time had come.
local expired = 0

local function write_due()
    for _, gone in ipairs({ overdue, not_due }) do
        for i = 1, #gone, PAIRS do
            write('ZREM', DUE, unpack(gone, i, math.min(i + PAIRS - 1, #gone)))
        end
    end
    write_list('ZADD', DUE, dues)
    local first = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
    local cell = pool_id .. '/' .. rules.bucket
    if first[2] then
        write('ZADD', DUES, first[2], cell)
    else
        write('ZREM', DUES, cell)
    end
end

local function write_state()
    assert(state.available >= 0
        and state.available + state.held + state.ordered + state.paid == state.share
        or state.cleared == 1, 'available and taken units do not add up')
    write('HSET', POOL, 'state', pack({ state.version, state.total, state.share,
        state.available, state.held, state.ordered, state.paid, state.claims, state.payments,
        state.opened_at, state.closed_at, state.cleared, state.fresh, state.arrived,
        state.skipped, state.short, state.server }))
    if left_out and state.cleared == 0 then
        local gaps = redis.call('HGET', POOL, 'gaps')
        gaps = gaps and unpack_value(gaps) or {}
        local last = gaps[#gaps]
        if last and last[2] == left_out[1] then
            last[2] = left_out[2]
        else
            gaps[#gaps + 1] = left_out
        end
        write('HSET', POOL, 'gaps', pack(gaps))
    end
    write_list('HSET', CLAIMS, granted)
    write_map(CLAIMS, dirty_claims)
    write_list('HSET', BUYERS, bought)
    write_list('HSET', REQUESTS, requested)
    write_map(PAYMENTS, dirty_payments)
    write_map(REFUNDED, dirty_refunds)
    if #dues > 0 or #overdue > 0 or #not_due > 0 or state.cleared == 1 then
        write_due()
    end
end

local function write_all()
    seq = seq + logged
    -- Of a pool that was forgotten there is only what the log says.
    if state then
        write_state()
    end
    if logged > 0 then
        -- One behind the other they are what happened, wherever they are cut.
        if #events > PARTS then
            events = { table.concat(events) }
        end
        local parts = {}
        for i = 1, #events do
            parts[i * 2 - 1], parts[i * 2] = 'events', events[i]
        end
        -- An entry without a kind is of a sale.
        if rules.packet == 1 then
            parts[#parts + 1], parts[#parts + 2] = 'kind', 'packet'
        end
        write('XADD', LOG, seq .. '-0', 'pool', pool_id, 'count', logged, unpack(parts))
    end
end

-- Releases what is overdue, and says whether that was all.
local function release_overdue()
    local looked_at, due = 0, redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, MAX_RELEASED)
    for i = 1, #due do
        if looked_at >= MAX_RELEASED then
            return false
        end
        local first, last = struct.unpack('>I4I4', due[i])
        for n = first, last, rules.buckets do
            local claim = claim_of(n)
            local at = due_of(claim)
            if at >= 0 and at <= now then
                release(claim, claim[C_STATE] == HELD and HOLD_EXPIRED or PAY_EXPIRED)
                expired = expired + 1
            end
            looked_at = looked_at + 1
        end
        overdue[i] = due[i]
        changed = true
    end
    return #due < MAX_RELEASED
end

local replies, ready = {}, not state or state.cleared == 1 or release_overdue()
for i = 1, ready and #commands or 0 do
    replies[i] = decide[commands[i][1]](commands[i])
end
if changed then
    write_all()
    if number > last_change then
        last_change = number
        write('SET', NODE, number, 'PX', KEEP_CHANGE_MS)
    end
end
local answer = { 'again', logged, expired }
if ready then
    local grants, available, next_due = {}, 0, -1
    if state then
        -- Of what costs something; whoever reads this knows what that changes.
        local first, hold_until, pay_by = first_state(1)
        grants = { first, hold_until, pay_by, rules.by_identity, rules.closes, state.claims,
            rules.buckets, state.skipped, rules.packet }
        available = state.available
        -- Whoever remembers that nothing is left must know when that may change.
        if available == 0 then
            next_due = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '-1')
        end
    end
    answer = { 'ok', seq, now, next_due, available, grants, replies, last_change, logged, expired }
end
local packed = pack(answer)
-- A call that is made again leaves a trace in any case, so that a late copy of it, which may find
-- other things than it did, has no effect.
if changed or keep then
    write('SET', LANE, pack({ number, packed }), 'PX', KEEP_ANSWER_MS)
    -- Nothing is written behind this: see `write`.
    redis.call('HSET', META, 'seq', seq, 'at', now, 'ended', begun)
end
return packed
