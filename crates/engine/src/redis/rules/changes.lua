-- What becomes of a claim that was granted: ordered, given back, revoked, looked at.

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
    claim[C_VERSION] = claim[C_VERSION] + 1
    claim[C_CHANGED] = now
    if claim[C_PRICE] == 0 then
        -- Nobody will ever pay for what costs nothing.
        state.paid = state.paid + claim[C_QUANTITY]
        claim[C_STATE] = PAID
    else
        state.ordered = state.ordered + claim[C_QUANTITY]
        claim[C_STATE] = ORDERED
        claim[C_PAY_BY] = now + rules.pay_ms
        add_due(claim[C_NUMBER], claim[C_NUMBER], claim[C_PAY_BY])
    end
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

-- number. The claim keeps its payment: that it is released and has one says that the money is owed back.
function decide.revoke(c)
    local claim, refused = find(c[2], '')
    if refused then
        return refused
    elseif claim[C_STATE] == RELEASED then
        return claim[C_PAYMENT] ~= '' and { REPLAYED, pack(claim) } or { REFUSED, 'released' }
    elseif claim[C_STATE] ~= PAID or claim[C_PAYMENT] == '' then
        return { REFUSED, 'not_paid' }
    end
    release(claim, REVOKED)
    return { DONE, pack(claim) }
end

-- number
function decide.find(c)
    local claim = state and claim_of(c[2])
    return claim and { DONE, pack(claim) } or { REFUSED, 'no_such_claim' }
end
