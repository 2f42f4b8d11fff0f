-- Money: it pays an order, buys a released claim anew, or is owed back; each payment once.

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
    put_payment(payment, { n, FATE_REFUND, high, low, reason, now })
    local packed = pack({ EVENT_REFUND, n, payment, high, low, reason, now })
    write('RPUSH', REFUNDS, packed)
    log(packed, 1)
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
    dirty_claims[field_of(n)] = pack(claim)
    put_payment(id, { n, FATE_PAID, number_anew })
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
