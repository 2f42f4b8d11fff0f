-- Claims: who gets units, at what price, and how they come back.

local function price_now()
    local price, sold = rules.price, state.share - state.available
    for _, step in ipairs(rules.steps) do
        if step[1] <= sold then
            price = step[2]
        end
    end
    return price
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

-- number
function decide.find(c)
    local claim = state and claim_of(c[2])
    return claim and { DONE, pack(claim) } or { REFUSED, 'no_such_claim' }
end
