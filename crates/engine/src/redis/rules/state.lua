-- What a pool and its claims are: read once, changed in memory, written at the end. Nothing here
-- decides.

-- What the pool is, read once. `rules` never change; `state` is written back at the end.
--   claims   numbers used, with those of `skipped` claims: numbers of claims that may have been granted
--            and lost are left out
--   short    units taken that were never there: a repair found more taken than the total. What comes
--            back makes up for them first
--   server   the one that gave the last numbers; none if it was written before servers were told apart
local stored = redis.call('HMGET', POOL, 'rules', 'state')
local rules, state

-- Pools that were opened before there were packets do not say whether they are one.
local function read_rules(packed)
    local r = unpack_value(packed)
    return { limit = r[1], by_identity = r[2], price = r[3], steps = r[4], opens = r[5],
        closes = r[6], flow = r[7], hold_ms = r[8], pay_ms = r[9], never = r[10],
        portions = r[11], bucket = r[12], buckets = r[13], packet = r[14] or 0 }
end

-- Of an opening that was carried out in part there may be rules and no state: there is no such pool.
if stored[1] and stored[2] then
    rules = read_rules(stored[1])
    local s = unpack_value(stored[2])
    state = { version = s[1], total = s[2], share = s[3], available = s[4], held = s[5],
        ordered = s[6], paid = s[7], claims = s[8], payments = s[9], opened_at = s[10],
        closed_at = s[11], cleared = s[12], fresh = s[13], arrived = s[14], skipped = s[15],
        short = s[16], server = s[17] }
end

-- A crowd of claims is what has to be fast here. So what they add is kept as it will be written,
-- field and value by turns, in the order in which it happened: the last word on a field counts.
local events, logged = {}, 0
local granted, bought, requested, dues = {}, {}, {}, {}
-- What this call has changed or looked at already.
local claims, dirty_claims = {}, {}
local fresh, runs, looked_up = {}, {}, 0
local buyers, requests = {}, {}
local payments, dirty_payments, dirty_refunds = {}, {}, {}
local not_due = {}
-- Members of DUE whose time has come.
local overdue = {}
local changed = false

local format, floor, char, sub = string.format, math.floor, string.char, string.sub

-- Making a text from a number takes longer than all else that is done for a claim, so the bytes
-- that neighbours share are made once.
local high, high_text = -1, ''

-- The number that this one and its neighbours begin from, and the bytes they share.
local function neighbours(n)
    local from = floor(n / 256)
    if from ~= high then
        high, high_text = from, sub(struct.pack('>I4', from), 2)
    end
    return from * 256, high_text
end

-- A claim's number as a field, or as a member: four bytes, in the order of numbers.
local function field_of(n)
    local from, shared = neighbours(n)
    return shared .. char(n - from)
end

local function number_in(field)
    return (struct.unpack('>I4', field))
end

local function log(event, count)
    events[#events + 1] = event
    logged = logged + count
    changed = true
end

-- A run or a claim, as it lies in a field.
local function run_in(field)
    if not runs[field] then
        for i = looked_up + 1, #granted, 2 do
            fresh[granted[i]] = granted[i + 1]
        end
        looked_up = #granted
        local found = fresh[field] or redis.call('HGET', CLAIMS, field)
        if not found then
            return nil
        end
        local run = unpack_value(found)
        if run[1] == EVENT_RUN then
            run[R_OWN] = { unpack_value(run[R_OWN]) }
        end
        runs[field] = run
    end
    return runs[field]
end

-- Claims of a run that fill a block lie in one field, the block's; every other claim, and whatever
-- became of one since, lies in its own.
local function block_of(n)
    return 'b' .. struct.pack('>I4', floor((n - 1 - rules.bucket) / rules.buckets / BLOCK))
end

-- Claims that lie in a block; of these only what became of them is kept in a field of their own.
local in_block = {}

-- A claim of a run as it was granted.
local function granted_in(run, n)
    local own, i = run[R_OWN], (n - run[R_FIRST]) / run[R_STEP] * 4
    return { EVENT_CLAIM, n, own[i + 1], own[i + 2], own[i + 3], own[i + 4], run[R_PRICE],
        run[R_PORTION], run[R_STATE], 1, run[R_CREATED], run[R_CREATED], run[R_HOLD],
        run[R_PAY_BY], '', 0, 0 }
end

local function claim_of(n)
    if not claims[n] then
        local found = run_in(field_of(n))
        if not found or found[1] == KEPT_CHANGE then
            local change, block = found, run_in(block_of(n))
            found = block and granted_in(block, n)
            in_block[n] = block ~= nil
            if found and change then
                local created, pay_by = found[C_CREATED], change[K_PAY_BY]
                found[C_STATE], found[C_VERSION] = change[K_STATE], change[K_VERSION]
                found[C_CHANGED] = created + change[K_CHANGED]
                found[C_PAY_BY] = pay_by < 0 and -1 or created + pay_by
                found[C_PAYMENT], found[C_REASON] = change[K_PAYMENT], change[K_REASON]
                found[C_REPLACED] = change[K_REPLACED]
            end
        elseif found[1] == EVENT_RUN then
            found = granted_in(found, n)
        end
        claims[n] = found
    end
    return claims[n]
end

-- Keeps a claim as it is by now.
local function keep_claim(claim)
    local n, kept = claim[C_NUMBER], claim
    if in_block[n] then
        local created, pay_by = claim[C_CREATED], claim[C_PAY_BY]
        kept = { KEPT_CHANGE, claim[C_STATE], claim[C_VERSION], claim[C_CHANGED] - created,
            pay_by < 0 and -1 or pay_by - created, claim[C_PAYMENT], claim[C_REASON],
            claim[C_REPLACED] }
    end
    claims[n] = claim
    dirty_claims[field_of(n)] = pack(kept)
end

local function put_claim(claim)
    keep_claim(claim)
    log(pack(claim), 1)
end

-- A buyer: the number of their latest claim and, unless that is one, the units they have used, four
-- bytes each.
local function write_buyer(field, used)
    return used == 1 and field or field .. struct.pack('>I4', used)
end

local function read_buyer(buyer)
    return number_in(buyer), #buyer > 4 and (struct.unpack('>I4', buyer, 5)) or 1
end

local function put_buyer(name, field, used)
    local buyer, last = write_buyer(field, used), #bought
    buyers[name] = buyer
    bought[last + 1], bought[last + 2] = name, buyer
end

-- The latest claim of a buyer, and the units they have used.
local function buyer_of(name)
    local buyer = buyers[name] or redis.call('HGET', BUYERS, name)
    if buyer then
        return read_buyer(buyer)
    end
    return nil, 0
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
        write('ZREM', RETURNED, place)
    else
        state.fresh = state.fresh + 1
    end
end

-- Claims that are due together, from one number to another, are one member of DUE. It stays until
-- its time has come, whatever became of them meanwhile; then each is looked at.
local function add_due(first, last, at)
    local count = #dues
    dues[count + 1], dues[count + 2] = format('%.0f', at), field_of(first) .. field_of(last)
end

-- A claim that was due by itself is not any more.
local function drop_due(n)
    local field = field_of(n)
    not_due[#not_due + 1] = field .. field
end

local function due_of(claim)
    if claim[C_STATE] == HELD then
        return claim[C_HOLD]
    elseif claim[C_STATE] == ORDERED then
        return claim[C_PAY_BY]
    end
    return -1
end

-- Counts units that were taken.
local function count_taken(first, units)
    state.available = state.available - units
    if first == HELD then
        state.held = state.held + units
    elseif first == ORDERED then
        state.ordered = state.ordered + units
    else
        state.paid = state.paid + units
    end
end

-- Units that come back, or are new; what is short is made up for first.
local function give_back(units)
    local made_up = math.min(units, state.short)
    state.short = state.short - made_up
    state.share = state.share - made_up
    state.available = state.available + units - made_up
    state.arrived = state.arrived + 1
end

local function release(claim, reason)
    local quantity = claim[C_QUANTITY]
    if claim[C_STATE] == HELD then
        state.held = state.held - quantity
    elseif claim[C_STATE] == PAID then
        state.paid = state.paid - quantity
    else
        state.ordered = state.ordered - quantity
    end
    give_back(quantity)
    if claim[C_STATE] == ORDERED and rules.flow == 2 then
        drop_due(claim[C_NUMBER])
    end
    if claim[C_PORTION] >= 0 then
        write('ZADD', RETURNED, claim[C_PORTION], claim[C_PORTION])
    end
    if rules.never == 0 then
        local name = buyer_name(claim)
        local latest, used = buyer_of(name)
        put_buyer(name, field_of(latest), used - quantity)
    end
    claim[C_STATE] = RELEASED
    claim[C_VERSION] = claim[C_VERSION] + 1
    claim[C_CHANGED] = now
    claim[C_REASON] = reason
    put_claim(claim)
end

-- What a fresh claim of this price looks like at this time. An order that costs nothing is paid as it
-- is placed.
local function first_state(price)
    if rules.flow == 0 or (rules.flow == 1 and price == 0) then
        return PAID, -1, -1
    elseif rules.flow == 1 then
        return ORDERED, -1, now + rules.pay_ms
    end
    return HELD, now + rules.hold_ms, -1
end

-- Places among the claims whose numbers this call leaves out, from the first up to, not with, the second.
local left_out = nil

-- A server that has started again, or has taken another one's place, may have forgotten the last claims, and
-- those who know it may not have asked yet. So it gives no number that one of them may have: their money
-- would pay somebody else's order.
local function meet_server()
    if server == 0 or state.server == server then
        return
    elseif state.server then
        local first, last = state.claims, floor(MAX_NUMBER / rules.buckets)
        -- Never so many that none are left for those to come.
        local count = math.min(math.ceil(LEFT_OUT / rules.buckets) + state.share,
            floor((last - first) / 2))
        left_out = { first, first + count }
        state.claims, state.skipped = first + count, state.skipped + count
        changed = true
    end
    state.server = server
end

-- What can be asked, by name; the files below fill it.
local decide = {}
