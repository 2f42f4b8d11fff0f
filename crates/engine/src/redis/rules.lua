-- The rules of a pool, where its state is: one call decides a list of commands on one pool (or on
-- one bucket of it), one after the other, and writes what they change. A call happens as a whole or
-- not at all: the server refuses a write for want of memory or disk only before the first one.
--
-- The rules are those of `qiang-core`, in its order; equal answers and equal events are what the
-- contract tests demand. Every key is declared and lies in the pool's partition.
--
-- ARGV[1], packed: { now in ms or -1 for the server's own clock, epoch, known position,
--                    number of the call on its lane, pool id, { command, ... } }
-- Answers, packed: { "lost", epoch, position }   the state is not the one the caller knows
--                  { "stale" }                   a later call of the lane was here already
--                  { "again" }                   more is overdue than one call releases
--                  { "ok", position, now, next due or -1, available, grants, { reply, ... } }
local META, LOG, POOLS, DUES, POOL, CLAIMS, BUYERS, REQUESTS, PAYMENTS, DUE, REFUNDS, HISTORY,
    RESTOCKS, PORTIONS, RETURNED, MOVES, LANE =
    KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10],
    KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]

-- A claim that is overdue is released before anything else is decided, so many in one call.
local MAX_RELEASED = 512
local MAX_UNITS = 2147483648
local MAX_CHANGES = 10000
-- An answer is kept for whoever asks again because it got lost on the way. It is no limit: a lane
-- gives up asking long before, and what was decided stands in any case.
local KEEP_ANSWER_MS = 600000

local HELD, ORDERED, PAID, RELEASED = 0, 1, 2, 3
local HOLD_EXPIRED, PAY_EXPIRED = 3, 4
local LATE, ALREADY_PAID, AMOUNT_MISMATCH = 0, 1, 2
local OPENED, RESTOCKED, CLOSED, CLEARED = 0, 1, 2, 3
local DONE, REPLAYED, REFUSED = 0, 1, 2
local FATE_PAID, FATE_REFUND, FATE_ELSEWHERE = 0, 1, 2
local EVENT_CLAIM, EVENT_POOL, EVENT_REFUND = 1, 2, 3

-- A claim: kind, number, user, identity, request, quantity, price, portion, state, version,
-- created, changed, hold until, pay by, payment, replaces, reason, replaced by (not an event's).
local C_NUMBER, C_USER, C_IDENTITY, C_REQUEST, C_QUANTITY, C_PRICE, C_PORTION, C_STATE, C_VERSION,
    C_CREATED, C_CHANGED, C_HOLD, C_PAY_BY, C_PAYMENT, C_REPLACES, C_REASON, C_REPLACED =
    2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18

local pack, unpack_value = cmsgpack.pack, cmsgpack.unpack
local call = unpack_value(ARGV[1])
local now, epoch, known, number, pool_id, commands =
    call[1], call[2], call[3], call[4], call[5], call[6]

local meta = redis.call('HMGET', META, 'epoch', 'seq', 'at')
local seq = tonumber(meta[2] or '0')
if meta[1] ~= epoch or seq < known then
    return pack({ 'lost', meta[1] or '', seq })
end
local answered = redis.call('GET', LANE)
if answered then
    answered = unpack_value(answered)
    if answered[1] == number then
        -- A write, so that whoever waits for replicas waits for what was answered.
        redis.call('PEXPIRE', LANE, KEEP_ANSWER_MS)
        return answered[2]
    elseif answered[1] > number then
        return pack({ 'stale' })
    end
end
if now < 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
now = math.max(now, tonumber(meta[3] or '0'))

-- What the pool is, read once. `rules` never change; `state` is written back at the end.
local stored = redis.call('HMGET', POOL, 'rules', 'state')
local rules, state
if stored[1] then
    local r, s = unpack_value(stored[1]), unpack_value(stored[2])
    rules = { limit = r[1], by_identity = r[2], price = r[3], steps = r[4], opens = r[5],
        closes = r[6], flow = r[7], hold_ms = r[8], pay_ms = r[9], never = r[10],
        portions = r[11], bucket = r[12], buckets = r[13] }
    state = { version = s[1], total = s[2], share = s[3], available = s[4], held = s[5],
        ordered = s[6], paid = s[7], claims = s[8], payments = s[9], opened_at = s[10],
        closed_at = s[11], cleared = s[12], fresh = s[13], arrived = s[14] }
end

local events = {}
local claims, dirty_claims = {}, {}
local buyers, dirty_buyers = {}, {}
local requests, dirty_requests = {}, {}
local payments, dirty_payments = {}, {}
local added_due, removed_due = {}, {}
local changed = false

local function due_member(n)
    return string.format('%010d', n)
end

local function claim_of(n)
    local claim = claims[n]
    if claim == nil then
        local found = redis.call('HGET', CLAIMS, n)
        claim = found and unpack_value(found) or false
        claims[n] = claim
    end
    return claim
end

local function put_claim(claim)
    local n, packed = claim[C_NUMBER], pack(claim)
    claims[n] = claim
    dirty_claims[n] = packed
    events[#events + 1] = packed
    changed = true
end

-- A buyer: the number of their latest claim, and the units they have used.
local function buyer_of(name)
    local buyer = buyers[name]
    if buyer == nil then
        local found = redis.call('HGET', BUYERS, name)
        buyer = false
        if found then
            local latest, used = string.match(found, '^(%d+):(%d+)$')
            buyer = { tonumber(latest), tonumber(used) }
        end
        buyers[name] = buyer
    end
    return buyer
end

local function put_buyer(name, latest, used)
    buyers[name] = { latest, used }
    dirty_buyers[name] = latest .. ':' .. used
end

local function request_key(user, request)
    return user .. '\0' .. request
end

local function request_of(key)
    local found = requests[key]
    if found == nil then
        found = tonumber(redis.call('HGET', REQUESTS, key) or false) or false
        requests[key] = found
    end
    return found
end

local function payment_of(id)
    local found = payments[id]
    if found == nil then
        found = redis.call('HGET', PAYMENTS, id)
        found = found and unpack_value(found) or false
        payments[id] = found
    end
    return found
end

local function put_payment(id, payment)
    payments[id] = payment
    dirty_payments[id] = pack(payment)
    state.payments = state.payments + 1
    changed = true
end

local function is_closed()
    return state.closed_at >= 0 or state.cleared == 1 or (rules.closes >= 0 and now >= rules.closes)
end

local function buyer_name(claim)
    return rules.by_identity == 1 and claim[C_IDENTITY] or claim[C_USER]
end

local function price_now()
    local price, sold = rules.price, state.share - state.available
    for _, step in ipairs(rules.steps) do
        if step[1] <= sold then
            price = step[2]
        end
    end
    return price
end

-- The lowest portion that is free, and its value.
local function next_portion()
    if rules.portions == 0 then
        return nil
    end
    local place = redis.call('ZRANGE', RETURNED, 0, 0)[1]
    place = place and tonumber(place) or state.fresh
    if place >= rules.portions then
        return nil
    end
    local bytes = redis.call('GETRANGE', PORTIONS, place * 4, place * 4 + 3)
    return place, struct.unpack('>I4', bytes)
end

local function take_portion(place)
    if place < state.fresh then
        redis.call('ZREM', RETURNED, place)
    else
        state.fresh = state.fresh + 1
    end
end

-- Amounts can be larger than what a number here holds exactly, so they come in two parts.
local function costs(claim, high, low)
    local quantity = claim[C_QUANTITY]
    local l = claim[C_PRICE] * (quantity % 65536)
    local h = claim[C_PRICE] * math.floor(quantity / 65536) + math.floor(l / 65536)
    return h == high and l % 65536 == low
end

local function check_limit(name, quantity)
    local buyer = buyer_of(name)
    local had = buyer and buyer[2] or 0
    local at_once = rules.portions > 0 and 1 or rules.limit
    if buyer and rules.limit == 1 and had == 1 then
        return { REFUSED, 'already_claimed', buyer[1] }
    elseif quantity > math.max(rules.limit - had, 0) then
        return { REFUSED, 'over_limit', had, rules.limit }
    elseif quantity > at_once then
        return { REFUSED, 'over_limit', had, at_once }
    end
end

local function next_number()
    local n = state.claims * rules.buckets + rules.bucket + 1
    state.claims = state.claims + 1
    return n
end

local function set_due(n, at)
    local member = due_member(n)
    removed_due[member] = nil
    added_due[member] = at
end

local function unset_due(n)
    local member = due_member(n)
    added_due[member] = nil
    removed_due[member] = true
end

local function due_of(claim)
    if claim[C_STATE] == HELD then
        return claim[C_HOLD]
    elseif claim[C_STATE] == ORDERED then
        return claim[C_PAY_BY]
    end
    return -1
end

-- Counts a new claim: units, quota, request, deadline.
local function count_granted(claim, uses)
    local n, quantity = claim[C_NUMBER], claim[C_QUANTITY]
    state.available = state.available - quantity
    if claim[C_STATE] == HELD then
        state.held = state.held + quantity
    elseif claim[C_STATE] == ORDERED then
        state.ordered = state.ordered + quantity
    else
        state.paid = state.paid + quantity
    end
    if claim[C_PORTION] >= 0 then
        take_portion(claim[C_PORTION])
    end
    local name = buyer_name(claim)
    local buyer = buyer_of(name)
    put_buyer(name, n, (buyer and buyer[2] or 0) + uses)
    if claim[C_REQUEST] ~= '' then
        local key = request_key(claim[C_USER], claim[C_REQUEST])
        requests[key] = n
        dirty_requests[key] = n
    end
    local due = due_of(claim)
    if due >= 0 then
        set_due(n, due)
    end
    put_claim(claim)
end

local function release(claim, reason)
    local quantity = claim[C_QUANTITY]
    if claim[C_STATE] == HELD then
        state.held = state.held - quantity
    else
        state.ordered = state.ordered - quantity
    end
    state.available = state.available + quantity
    state.arrived = state.arrived + 1
    if claim[C_PORTION] >= 0 then
        redis.call('ZADD', RETURNED, claim[C_PORTION], claim[C_PORTION])
    end
    if rules.never == 0 then
        local name = buyer_name(claim)
        local buyer = buyer_of(name)
        put_buyer(name, buyer[1], buyer[2] - quantity)
    end
    unset_due(claim[C_NUMBER])
    claim[C_STATE] = RELEASED
    claim[C_VERSION] = claim[C_VERSION] + 1
    claim[C_CHANGED] = now
    claim[C_REASON] = reason
    put_claim(claim)
end

-- What a fresh claim looks like at this time.
local function first_state()
    if rules.flow == 0 then
        return PAID, -1, -1
    elseif rules.flow == 1 then
        return ORDERED, -1, now + rules.pay_ms
    end
    return HELD, now + rules.hold_ms, -1
end

local function view(kind)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    return { kind, state.version, state.total, state.available, state.held, state.ordered,
        state.paid, state.claims, state.payments, state.opened_at, state.closed_at,
        state.cleared, redis.call('HGET', POOL, 'terms') }
end

-- Only the first bucket speaks for the pool as a whole.
local function change_pool(kind, units, request)
    changed = true
    if rules.bucket > 0 then
        return
    end
    state.version = state.version + 1
    local change = { state.version, kind, units, request, state.total, state.closed_at, now }
    redis.call('RPUSH', HISTORY, pack(change))
    local terms = redis.call('HGET', POOL, 'terms')
    events[#events + 1] = pack({ EVENT_POOL, state.version, kind, units, request, state.total,
        state.closed_at, now, terms })
end

local function find(n, by)
    if not state then
        return nil, { REFUSED, 'no_such_claim' }
    elseif state.cleared == 1 then
        return nil, { REFUSED, 'cleared' }
    end
    local claim = claim_of(n)
    if not claim or (by ~= '' and claim[C_USER] ~= by) then
        return nil, { REFUSED, 'no_such_claim' }
    end
    return claim
end

local function refund(n, payment, high, low, reason)
    put_payment(payment, { n, FATE_REFUND, high, low, reason, now })
    local packed = pack({ EVENT_REFUND, n, payment, high, low, reason, now })
    redis.call('RPUSH', REFUNDS, packed)
    events[#events + 1] = packed
    return { DONE, 'r', packed }
end

local function settled(kind, claim)
    return { kind, claim[C_REPLACES] > 0 and 'g' or 'p', pack(claim) }
end

local function repeat_payment(seen, id, n, high, low)
    if seen[2] == FATE_PAID then
        local claim = claim_of(seen[3])
        if seen[1] == n and costs(claim, high, low) then
            return settled(REPLAYED, claim)
        end
    elseif seen[1] == n and seen[3] == high and seen[4] == low then
        return { REPLAYED, 'r',
            pack({ EVENT_REFUND, seen[1], id, seen[3], seen[4], seen[5], seen[6] }) }
    end
    return { REFUSED, 'payment_conflict' }
end

local decide = {}

-- user, identity, request, quantity
function decide.claim(c)
    local user, identity, request, quantity = c[2], c[3], c[4], c[5]
    if not state then
        return { REFUSED, 'no_such_pool' }
    elseif state.cleared == 1 then
        return { REFUSED, 'closed' }
    end
    if request ~= '' then
        local first = request_of(request_key(user, request))
        if first then
            local claim = claim_of(first)
            if claim[C_QUANTITY] == quantity then
                return { REPLAYED, pack(claim) }
            end
            return { REFUSED, 'request_conflict' }
        end
    end
    if now < rules.opens then
        return { REFUSED, 'not_open_yet', rules.opens }
    elseif is_closed() then
        return { REFUSED, 'closed' }
    elseif rules.by_identity == 0 then
        identity = ''
    elseif identity == '' then
        return { REFUSED, 'not_eligible' }
    end
    local refused = check_limit(identity ~= '' and identity or user, quantity)
    if refused then
        return refused
    elseif quantity > state.available then
        return { REFUSED, 'sold_out' }
    end
    local portion, price = next_portion()
    price = price or price_now()
    local first, hold_until, pay_by = first_state()
    local n = next_number()
    count_granted({ EVENT_CLAIM, n, user, identity, request, quantity, price, portion or -1,
        first, 1, now, now, hold_until, pay_by, '', 0, 0 }, quantity)
    return { DONE, n, price, portion or -1 }
end

-- number, by
function decide.order(c)
    local claim, refused = find(c[2], c[3])
    if refused then
        return refused
    elseif claim[C_STATE] == RELEASED then
        return { REFUSED, 'released' }
    elseif claim[C_STATE] ~= HELD then
        return { REPLAYED, pack(claim) }
    end
    state.held = state.held - claim[C_QUANTITY]
    state.ordered = state.ordered + claim[C_QUANTITY]
    claim[C_STATE] = ORDERED
    claim[C_VERSION] = claim[C_VERSION] + 1
    claim[C_CHANGED] = now
    claim[C_PAY_BY] = now + rules.pay_ms
    set_due(claim[C_NUMBER], claim[C_PAY_BY])
    put_claim(claim)
    return { DONE, pack(claim) }
end

-- number, by, reason
function decide.release(c)
    local claim, refused = find(c[2], c[3])
    if refused then
        return refused
    elseif claim[C_STATE] == RELEASED then
        return { REPLAYED, pack(claim) }
    elseif claim[C_STATE] == PAID then
        return { REFUSED, 'already_paid' }
    end
    release(claim, c[4])
    return { DONE, pack(claim) }
end

-- number, payment, high, low, fence, whether to say so instead of refunding for want of stock
function decide.pay(c)
    local n, id, high, low, fence, may_borrow = c[2], c[3], c[4], c[5], c[6], c[7]
    if not state then
        return { REFUSED, 'no_such_claim' }
    elseif state.cleared == 1 then
        return { REFUSED, 'cleared' }
    end
    local seen = payment_of(id)
    if seen and seen[2] ~= FATE_ELSEWHERE then
        return repeat_payment(seen, id, n, high, low)
    elseif seen and seen[3] >= fence then
        return { REFUSED, 'elsewhere' }
    end
    local claim = claim_of(n)
    if not claim then
        return { REFUSED, 'no_such_claim' }
    elseif claim[C_STATE] == HELD or (claim[C_STATE] == RELEASED and claim[C_PAY_BY] < 0) then
        return { REFUSED, 'not_ordered' }
    elseif claim[C_STATE] == PAID or (claim[C_REPLACED] or 0) > 0 then
        return refund(n, id, high, low, ALREADY_PAID)
    elseif not costs(claim, high, low) then
        return refund(n, id, high, low, AMOUNT_MISMATCH)
    elseif claim[C_STATE] == ORDERED then
        state.ordered = state.ordered - claim[C_QUANTITY]
        state.paid = state.paid + claim[C_QUANTITY]
        unset_due(n)
        claim[C_STATE] = PAID
        claim[C_VERSION] = claim[C_VERSION] + 1
        claim[C_CHANGED] = now
        claim[C_PAYMENT] = id
        put_payment(id, { n, FATE_PAID, n })
        put_claim(claim)
        return settled(DONE, claim)
    end
    local quantity = claim[C_QUANTITY]
    local portion, price = next_portion()
    if quantity > state.available and may_borrow == 1 then
        return { REFUSED, 'sold_out' }
    end
    local gone = quantity > state.available or (portion and price ~= claim[C_PRICE])
    local may_again = rules.never == 1 or not check_limit(buyer_name(claim), quantity)
    if gone or not may_again then
        return refund(n, id, high, low, LATE)
    end
    local anew = { EVENT_CLAIM, next_number(), claim[C_USER], claim[C_IDENTITY], '', quantity,
        claim[C_PRICE], portion or -1, PAID, 1, now, now, -1, -1, id, n, 0 }
    claim[C_REPLACED] = anew[C_NUMBER]
    dirty_claims[n] = pack(claim)
    put_payment(id, { n, FATE_PAID, anew[C_NUMBER] })
    -- A released claim that never gave its quota back leaves it to the one in its place.
    count_granted(anew, rules.never == 1 and 0 or quantity)
    return settled(DONE, anew)
end

-- number, payment, high, low, fence
function decide.refund(c)
    local n, id, high, low, fence = c[2], c[3], c[4], c[5], c[6]
    if not state then
        return { REFUSED, 'no_such_claim' }
    elseif state.cleared == 0 then
        return { REFUSED, 'pool_in_use' }
    end
    local seen = payment_of(id)
    if seen and seen[2] ~= FATE_ELSEWHERE then
        return repeat_payment(seen, id, n, high, low)
    elseif seen and seen[3] >= fence then
        return { REFUSED, 'elsewhere' }
    end
    return refund(n, id, high, low, LATE)
end

-- payment, fence: from now on this pool leaves the payment to another one, if it never took it
function decide.disown(c)
    if not state then
        return { DONE }
    end
    local seen = payment_of(c[2])
    if seen and seen[2] ~= FATE_ELSEWHERE then
        return { REFUSED, 'payment_conflict' }
    elseif not seen or seen[3] < c[3] then
        payments[c[2]] = { 0, FATE_ELSEWHERE, c[3] }
        dirty_payments[c[2]] = pack(payments[c[2]])
        changed = true
    end
    return { DONE }
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
    state.available = state.available + units
    state.arrived = state.arrived + 1
    redis.call('HSET', RESTOCKS, request, units)
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

function decide.clear()
    if not state then
        return { REFUSED, 'no_such_pool' }
    elseif state.cleared == 1 then
        return view(REPLAYED)
    elseif not is_closed() or state.held + state.ordered > 0 then
        return { REFUSED, 'pool_in_use' }
    end
    -- Refunds stay, so that none is owed twice.
    redis.call('UNLINK', CLAIMS, BUYERS, REQUESTS, DUE, PORTIONS, RETURNED, PAYMENTS, MOVES)
    claims, dirty_claims, buyers, dirty_buyers = {}, {}, {}, {}
    requests, dirty_requests, payments, dirty_payments = {}, {}, {}, {}
    added_due, removed_due = {}, {}
    local owed = redis.call('LRANGE', REFUNDS, 0, -1)
    for _, packed in ipairs(owed) do
        local r = unpack_value(packed)
        redis.call('HSET', PAYMENTS, r[3], pack({ r[2], FATE_REFUND, r[4], r[5], r[6], r[7] }))
    end
    state.payments = #owed
    state.available, state.held, state.ordered, state.paid, state.claims = 0, 0, 0, 0, 0
    state.share, state.fresh, state.cleared = 0, 0, 1
    change_pool(CLEARED, 0, '')
    return view(DONE)
end

-- terms, rules, portions, total, share
function decide.open(c)
    if state then
        if redis.call('HGET', POOL, 'terms') == c[2] and state.cleared == 0 then
            return view(REPLAYED)
        end
        return { REFUSED, 'pool_exists' }
    end
    local r = unpack_value(c[3])
    rules = { limit = r[1], by_identity = r[2], price = r[3], steps = r[4], opens = r[5],
        closes = r[6], flow = r[7], hold_ms = r[8], pay_ms = r[9], never = r[10],
        portions = r[11], bucket = r[12], buckets = r[13] }
    state = { version = 0, total = c[5], share = c[6], available = c[6], held = 0, ordered = 0,
        paid = 0, claims = 0, payments = 0, opened_at = now, closed_at = -1, cleared = 0,
        fresh = 0, arrived = 0 }
    redis.call('HSET', POOL, 'terms', c[2], 'rules', c[3])
    if rules.portions > 0 then
        redis.call('SET', PORTIONS, c[4])
    end
    if rules.bucket == 0 then
        redis.call('ZADD', POOLS, now, pool_id)
    end
    change_pool(OPENED, 0, '')
    return view(DONE)
end

-- Reads: the pool, a claim, or nothing but a look at the clock.
function decide.look()
    return view(DONE)
end

function decide.find(c)
    local claim = state and claim_of(c[2])
    return claim and { DONE, pack(claim) } or { REFUSED, 'no_such_claim' }
end

function decide.tick()
    return { DONE }
end

-- Units move between the buckets of a pool in three steps, each of which may be repeated: lent
-- here under a number, received there once under that number, and then settled here.
local function pending_moves()
    local pending, moves = {}, redis.call('HGETALL', MOVES)
    for i = 1, #moves, 2 do
        local to = string.match(moves[i], '^to:(%d+)$')
        local move = to and unpack_value(moves[i + 1])
        if move and move[2] > 0 then
            pending[#pending + 1] = { tonumber(to), move[1], move[2] }
        end
    end
    return pending
end

-- to, units wanted
function decide.lend(c)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    local field = 'to:' .. c[2]
    local last = redis.call('HGET', MOVES, field)
    last = last and unpack_value(last) or { 0, 0 }
    if last[2] == 0 and state.available > 0 then
        local units = math.min(state.available, math.max(c[3], math.floor(state.available / 2)))
        last = { last[1] + 1, units }
        state.available = state.available - units
        state.share = state.share - units
        redis.call('HSET', MOVES, field, pack(last))
        changed = true
    end
    return { DONE, last[1], last[2] }
end

-- from, number, units
function decide.receive(c)
    if not state or state.cleared == 1 then
        return { REFUSED, 'no_such_pool' }
    end
    local field = 'from:' .. c[2]
    if tonumber(redis.call('HGET', MOVES, field) or '0') < c[3] then
        redis.call('HSET', MOVES, field, c[3])
        state.available = state.available + c[4]
        state.share = state.share + c[4]
        state.arrived = state.arrived + 1
        changed = true
    end
    return { DONE }
end

-- to, number
function decide.settle(c)
    local field = 'to:' .. c[2]
    local last = redis.call('HGET', MOVES, field)
    if last and unpack_value(last)[1] == c[3] then
        redis.call('HSET', MOVES, field, pack({ c[3], 0 }))
        changed = true
    end
    return { DONE }
end

-- What is here and on its way from here, and how often units came.
function decide.stand()
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    return { DONE, state.available, state.arrived, pending_moves() }
end

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
            if found[i] then
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
if changed then
    redis.call('SET', LANE, pack({ number, packed }), 'PX', KEEP_ANSWER_MS)
end
return packed
