-- The pool as a whole: opened, restocked, closed, cleared, looked at. Its first bucket speaks for it.

local function view(kind)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    -- Of a pool of portions, which of them nobody has: all from `fresh` on, and these.
    local returned = {}
    if rules.portions > 0 then
        for i, place in ipairs(redis.call('ZRANGE', RETURNED, 0, -1)) do
            returned[i] = tonumber(place)
        end
    end
    return { kind, state.version, state.total, state.available, state.held, state.ordered,
        state.paid, state.claims - state.skipped, state.payments, state.opened_at,
        state.closed_at, state.cleared, redis.call('HGET', POOL, 'terms'), state.fresh, returned }
end

-- Only the first bucket speaks for the pool as a whole.
local function change_pool(kind, units, request)
    changed = true
    if rules.bucket > 0 then
        return
    end
    state.version = state.version + 1
    local change = { state.version, kind, units, request, state.total, state.closed_at, now }
    write('RPUSH', HISTORY, pack(change))
    local terms = redis.call('HGET', POOL, 'terms')
    log(pack({ EVENT_POOL, state.version, kind, units, request, state.total, state.closed_at, now,
        terms }), 1)
end

-- terms, rules, portions, total, share
function decide.open(c)
    if state then
        if redis.call('HGET', POOL, 'terms') == c[2] and state.cleared == 0 then
            return view(REPLAYED)
        end
        return { REFUSED, 'pool_exists' }
    end
    rules = read_rules(c[3])
    state = { version = 0, total = c[5], share = c[6], available = c[6], held = 0, ordered = 0,
        paid = 0, claims = 0, payments = 0, opened_at = now, closed_at = -1, cleared = 0,
        fresh = 0, arrived = 0, skipped = 0, short = 0, server = server }
    write('HSET', POOL, 'terms', c[2], 'rules', c[3])
    if rules.portions > 0 then
        write('SET', PORTIONS, c[4])
    end
    if rules.bucket == 0 then
        write('ZADD', POOLS, now, pool_id)
    end
    change_pool(OPENED, 0, '')
    return view(DONE)
end

-- units, request
function decide.restock(c)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    local units, request = c[2], c[3]
    local before = redis.call('HGET', RESTOCKS, request)
    if before then
        return tonumber(before) == units and view(REPLAYED) or { REFUSED, 'request_conflict' }
    elseif is_closed() then
        return { REFUSED, 'closed' }
    elseif rules.portions > 0 or state.total + units > MAX_UNITS
        or state.version >= MAX_CHANGES then
        return { REFUSED, 'cannot_restock' }
    end
    state.total = state.total + units
    state.share = state.share + units
    give_back(units)
    write('HSET', RESTOCKS, request, units)
    change_pool(RESTOCKED, units, request)
    return view(DONE)
end

function decide.close()
    if not state then
        return { REFUSED, 'no_such_pool' }
    elseif state.closed_at >= 0 or state.cleared == 1 then
        return view(REPLAYED)
    end
    state.closed_at = now
    change_pool(CLOSED, 0, '')
    return view(DONE)
end

-- Whether this part of the pool is over. Once it is, it stays so.
function decide.may_clear()
    if not state then
        return { REFUSED, 'no_such_pool' }
    elseif state.cleared == 1 or (is_closed() and state.held + state.ordered == 0) then
        return { DONE }
    end
    return { REFUSED, 'pool_in_use' }
end

-- 1 to leave nothing of it
function decide.clear(c)
    if not state then
        return { REFUSED, 'no_such_pool' }
    elseif state.cleared == 1 then
        return view(REPLAYED)
    elseif not is_closed() or state.held + state.ordered > 0 then
        return { REFUSED, 'pool_in_use' }
    end
    -- A server out of memory takes no more writes, except from a script that began with one that
    -- needs none. This one changes nothing, and lets a sale be cleared to make room.
    redis.call('HDEL', META, '')
    -- Refunds stay, and which bucket they are in, so that none is owed twice; and the numbers of
    -- transfers, which siblings that are not cleared yet are compared with.
    write('UNLINK', CLAIMS, BUYERS, REQUESTS, DUE, PORTIONS, RETURNED, PAYMENTS)
    granted, bought, requested, dues = {}, {}, {}, {}
    claims, dirty_claims, buyers, requests, in_block = {}, {}, {}, {}, {}
    fresh, runs, looked_up = {}, {}, 0
    payments, dirty_payments, not_due = {}, {}, {}
    state.payments = redis.call('LLEN', REFUNDS)
    state.available, state.held, state.ordered, state.paid, state.claims = 0, 0, 0, 0, 0
    state.share, state.fresh, state.skipped, state.short, state.cleared = 0, 0, 0, 0, 1
    change_pool(CLEARED, 0, '')
    local cleared = view(DONE)
    if c[2] == 1 then
        write('UNLINK', POOL, REFUNDS, HISTORY, RESTOCKS, MOVES, REFUNDED, PAYERS)
        write('ZREM', POOLS, pool_id)
        write('ZREM', DUES, pool_id .. '/' .. rules.bucket)
        dirty_refunds, overdue = {}, {}
        state = nil
    end
    return cleared
end

function decide.look()
    return view(DONE)
end

-- Nothing but a look at the clock.
function decide.tick()
    return { DONE }
end
