-- What a pool and its claims are: read once, changed in memory, written at the end. Nothing here
-- decides.

-- What the pool is, read once. `rules` never change; `state` is written back at the end.
local stored = redis.call('HMGET', POOL, 'rules', 'state')
local rules, state

local function read_rules(packed)
    local r = unpack_value(packed)
    return { limit = r[1], by_identity = r[2], price = r[3], steps = r[4], opens = r[5],
        closes = r[6], flow = r[7], hold_ms = r[8], pay_ms = r[9], never = r[10],
        portions = r[11], bucket = r[12], buckets = r[13] }
end

if stored[1] then
    rules = read_rules(stored[1])
    local s = unpack_value(stored[2])
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

-- What can be asked, by name; the files below fill it.
local decide = {}
