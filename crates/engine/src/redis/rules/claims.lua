-- Claims: who gets units, at what price, and how they come back.

-- Packed claims begin with these: a list of 17, of which this is the first.
local CLAIM_HEAD = '\220\0\17' .. char(EVENT_CLAIM)
-- How a packed text of so many bytes begins.
local text_heads = {}

local function text_head(length)
    local head = length < 32 and char(160 + length) or struct.pack('>BH', 218, length)
    text_heads[length] = head
    return head
end

-- No request; no identity, and one unit.
local NO_REQUEST, PLAIN = pack(''), pack('', 1)

local function price_at(available)
    local price, sold = rules.price, state.share - available
    for _, step in ipairs(rules.steps) do
        if step[1] <= sold then
            price = step[2]
        end
    end
    return price
end

local function check_limit(latest, had, quantity)
    local at_once = rules.portions > 0 and 1 or rules.limit
    if rules.limit == 1 and had == 1 then
        return { REFUSED, 'already_claimed', latest }
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

-- What every claim is told whatever it asks for, unless it was granted before.
local function barred()
    if now < rules.opens then
        return { REFUSED, 'not_open_yet', rules.opens }
    elseif is_closed() then
        return { REFUSED, 'closed' }
    end
end

local function repeat_claim(n, quantity)
    local claim = claim_of(n)
    if claim[C_QUANTITY] == quantity then
        return { REPLAYED, pack(claim) }
    end
    return { REFUSED, 'request_conflict' }
end

-- Claims, one after the other, in lists: whose quota each of them uses, '' if nobody's; its user, no
-- list if it is theirs; user and request, packed, '' without one, no list if nobody has one; its
-- units, no list if all want one.
--
-- Answers the price, the number of the first claim granted, and in order how many were granted for
-- that price, numbered one behind the other, or what one of them is told instead.
function decide.claims(c)
    local names, users, keys, quantities = c[2], c[3], c[4], c[5]
    local count, replies = #names, {}
    if not state or state.cleared == 1 then
        local refused = { REFUSED, state and 'closed' or 'no_such_pool' }
        for i = 1, count do
            replies[i] = refused
        end
        return { 0, 0, replies }
    end
    local found = redis.call('HMGET', BUYERS, unpack(names))
    local with_keys, with_quantities = #keys > 0, #quantities > 0
    local found_keys = with_keys and redis.call('HMGET', REQUESTS, unpack(keys))
    local refused, sold_out = barred(), { REFUSED, 'sold_out' }
    local first, hold_until, pay_by = first_state()
    local by_identity, portions, steps =
        rules.by_identity == 1, rules.portions > 0, #rules.steps > 0
    local buckets, available = rules.buckets, state.available
    local first_number = state.claims * buckets + rules.bucket + 1
    local n = first_number
    local buyers, granted, bought, events, floor, char = buyers, granted, bought, events, floor, char
    local last, last_bought, last_event = #granted, #bought, #events
    local last_requested, last_reply, in_a_row = #requested, 0, 0
    local price = price_at(available)
    local usual, portion, tail_price, tail = price, -1, nil, nil
    local head, head_for = '', -1
    for i = 1, count do
        local quantity, key, reply = 1, '', refused
        if with_quantities then
            quantity = quantities[i]
        end
        local before = false
        if with_keys then
            key = keys[i]
            before = key ~= '' and (requests[key] or found_keys[i])
        end
        if before then
            reply = repeat_claim(tonumber(before), quantity)
        elseif not refused then
            local name = names[i]
            local buyer, used = buyers[name] or found[i], quantity
            if name == '' then
                reply = { REFUSED, 'not_eligible' }
            elseif buyer then
                local latest, had = read_buyer(buyer)
                used = had + quantity
                reply = check_limit(latest, had, quantity)
            elseif quantity > 1 then
                reply = check_limit(nil, 0, quantity)
            end
            if not reply and quantity > available then
                reply = sold_out
            elseif not reply then
                if portions then
                    portion, price = next_portion()
                    take_portion(portion)
                elseif steps then
                    price = price_at(available)
                end
                if portions or price ~= tail_price then
                    tail_price = price
                    tail = pack(price, portion, first, 1, now, now, hold_until, pay_by, '', 0, 0)
                end
                -- The upper three bytes of the number are those of its neighbours.
                if floor(n / 256) ~= head_for then
                    head_for = floor(n / 256)
                    head = CLAIM_HEAD .. struct.pack('>BI3', 206, head_for)
                end
                local rest = PLAIN
                if by_identity or quantity > 1 then
                    rest = pack(by_identity and name or '', quantity)
                end
                local field, packed = field_of(n), nil
                if key ~= '' then
                    packed = head .. char(n % 256) .. key .. rest .. tail
                    requests[key] = field
                    requested[last_requested + 1], requested[last_requested + 2] = key, field
                    last_requested = last_requested + 2
                else
                    local user = users[i] or name
                    packed = head .. char(n % 256) .. (text_heads[#user] or text_head(#user))
                        .. user .. NO_REQUEST .. rest .. tail
                end
                granted[last + 1], granted[last + 2] = field, packed
                last = last + 2
                last_event = last_event + 1
                events[last_event] = packed
                buyer = write_buyer(field, used)
                buyers[name] = buyer
                bought[last_bought + 1], bought[last_bought + 2] = name, buyer
                last_bought = last_bought + 2
                available = available - quantity
                if portions or price ~= usual then
                    reply = { DONE, n, price, portion }
                end
                n = n + buckets
            end
        end
        if not reply then
            in_a_row = in_a_row + 1
        else
            if in_a_row > 0 then
                last_reply = last_reply + 1
                replies[last_reply], in_a_row = in_a_row, 0
            end
            last_reply = last_reply + 1
            replies[last_reply] = reply
        end
    end
    if in_a_row > 0 then
        replies[last_reply + 1] = in_a_row
    end
    if n > first_number then
        changed = true
        local due = math.max(hold_until, pay_by)
        if due >= 0 then
            add_due(first_number, n - buckets, due)
        end
    end
    state.claims = (n - rules.bucket - 1) / buckets
    count_taken(first, state.available - available)
    return { usual, first_number, replies }
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
    add_due(claim[C_NUMBER], claim[C_NUMBER], claim[C_PAY_BY])
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
