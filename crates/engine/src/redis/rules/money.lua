-- Money: it pays an order, buys a released claim anew, or is owed back; each payment once.

-- What became of a payment: the number of the claim it paid, or what is owed back of it.
local function payment_of(id)
    local found = payments[id]
    if found == nil then
        local paid = redis.call('HGET', PAYMENTS, id)
        local owed = not paid and redis.call('HGET', REFUNDED, id)
        found = paid and { paid = number_in(paid) } or owed and { owed = unpack_value(owed) }
            or false
        payments[id] = found
    end
    return found
end

local function put_payment(id, paid)
    payments[id] = { paid = paid }
    dirty_payments[id] = field_of(paid)
    state.payments = state.payments + 1
    changed = true
end

-- A new claim, as it will be written.
local function add_claim(field, packed)
    local last = #granted
    granted[last + 1], granted[last + 2] = field, packed
    log(packed, 1)
end

local function next_number()
    local n = state.claims * rules.buckets + rules.bucket + 1
    state.claims = state.claims + 1
    return n
end

-- Amounts can be larger than what a number here holds exactly, so they come in two parts.
local function costs(claim, high, low)
    local quantity = claim[C_QUANTITY]
    local l = claim[C_PRICE] * (quantity % 65536)
    local h = claim[C_PRICE] * math.floor(quantity / 65536) + math.floor(l / 65536)
    return h == high and l % 65536 == low
end

local function refund(n, payment, high, low, reason)
    local packed = pack({ EVENT_REFUND, n, payment, high, low, reason, now })
    payments[payment] = { owed = { EVENT_REFUND, n, payment, high, low, reason, now } }
    dirty_refunds[payment] = packed
    state.payments = state.payments + 1
    write('RPUSH', REFUNDS, packed)
    log(packed, 1)
    return { DONE, 'r', packed }
end

local function settled(kind, claim)
    return { kind, claim[C_REPLACES] > 0 and 'g' or 'p', pack(claim) }
end

local function repeat_payment(seen, n, high, low)
    local owed = seen.owed
    if owed and owed[2] == n and owed[4] == high and owed[5] == low then
        return { REPLAYED, 'r', pack(owed) }
    elseif seen.paid then
        local claim = claim_of(seen.paid)
        local order = claim[C_REPLACES] > 0 and claim[C_REPLACES] or seen.paid
        if order == n and costs(claim, high, low) then
            if claim[C_STATE] == RELEASED then
                return { REPLAYED, 'r', pack({ EVENT_REFUND, order, claim[C_PAYMENT], high, low,
                    REVOKED_CLAIM, claim[C_CHANGED] }) }
            end
            return settled(REPLAYED, claim)
        end
    end
    return { REFUSED, 'payment_conflict' }
end

-- Whether this bucket has left the payment to another one, which has a later reservation.
local function is_left(id, fence)
    return rules.buckets > 1
        and fence <= tonumber(redis.call('HGET', PAYERS, 'left:' .. id) or '0')
end

-- number, payment, high, low, fence, whether to say so instead of refunding for want of stock
function decide.pay(c)
    local n, id, high, low, fence, may_borrow = c[2], c[3], c[4], c[5], c[6], c[7]
    if not state then
        return { REFUSED, 'no_such_claim' }
    elseif state.cleared == 1 then
        return { REFUSED, 'cleared' }
    end
    meet_server()
    local seen = payment_of(id)
    if seen then
        return repeat_payment(seen, n, high, low)
    elseif is_left(id, fence) then
        return { REFUSED, 'elsewhere' }
    end
    local claim = claim_of(n)
    if not claim then
        -- A number that was used up belongs to a claim that was lost; its money is owed back.
        if n <= (state.claims - 1) * rules.buckets + rules.bucket + 1 then
            return refund(n, id, high, low, LOST_CLAIM)
        end
        return { REFUSED, 'no_such_claim' }
    elseif claim[C_STATE] == HELD
        or (claim[C_STATE] == RELEASED and claim[C_PAY_BY] < 0 and claim[C_PAYMENT] == '') then
        return { REFUSED, 'not_ordered' }
    elseif claim[C_STATE] == PAID or claim[C_PAYMENT] ~= '' or (claim[C_REPLACED] or 0) > 0 then
        return refund(n, id, high, low, ALREADY_PAID)
    elseif not costs(claim, high, low) then
        return refund(n, id, high, low, AMOUNT_MISMATCH)
    elseif claim[C_STATE] == ORDERED then
        state.ordered = state.ordered - claim[C_QUANTITY]
        state.paid = state.paid + claim[C_QUANTITY]
        claim[C_STATE] = PAID
        claim[C_VERSION] = claim[C_VERSION] + 1
        claim[C_CHANGED] = now
        claim[C_PAYMENT] = id
        if rules.flow == 2 then
            drop_due(n)
        end
        put_payment(id, n)
        put_claim(claim)
        return settled(DONE, claim)
    end
    local quantity = claim[C_QUANTITY]
    local portion, price = next_portion()
    if quantity > state.available and may_borrow == 1 then
        return { REFUSED, 'sold_out' }
    end
    local gone = quantity > state.available or (portion and price ~= claim[C_PRICE])
    local name = buyer_name(claim)
    local latest, used = buyer_of(name)
    local may_again = rules.never == 1 or not check_limit(latest, used, quantity)
    if gone or not may_again then
        return refund(n, id, high, low, LATE)
    end
    local number_anew = next_number()
    local anew = { EVENT_CLAIM, number_anew, claim[C_USER], '', claim[C_IDENTITY], quantity,
        claim[C_PRICE], portion or -1, PAID, 1, now, now, -1, -1, id, n, 0 }
    claim[C_REPLACED] = number_anew
    keep_claim(claim)
    put_payment(id, number_anew)
    count_taken(PAID, quantity)
    if portion then
        take_portion(portion)
    end
    -- A released claim that never gave its quota back leaves it to the one in its place.
    put_buyer(name, field_of(number_anew), used + (rules.never == 1 and 0 or quantity))
    add_claim(field_of(number_anew), pack(anew))
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
    if seen then
        return repeat_payment(seen, n, high, low)
    elseif is_left(id, fence) then
        return { REFUSED, 'elsewhere' }
    end
    return refund(n, id, high, low, LATE)
end

-- payment, bucket that wants it, whom the caller expects to have it ('' for nobody). A payment counts
-- in one bucket of a pool; this one keeps which: "<bucket>:<fence>", with a fence that rises whenever
-- it changes hands.
function decide.reserve(c)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    local owner = redis.call('HGET', PAYERS, 'of:' .. c[2]) or ''
    if owner == c[4] then
        local fence = tonumber(string.match(owner, ':(%d+)$') or '0') + 1
        owner = c[3] .. ':' .. fence
        write('HSET', PAYERS, 'of:' .. c[2], owner)
        changed = true
    end
    return { DONE, owner }
end

-- payment, fence: from now on this bucket leaves the payment to another one, if it never took it
function decide.leave(c)
    if not state then
        return { DONE }
    elseif payment_of(c[2]) then
        return { REFUSED, 'payment_conflict' }
    elseif not is_left(c[2], c[3]) then
        write('HSET', PAYERS, 'left:' .. c[2], c[3])
        changed = true
    end
    return { DONE }
end
