-- Claims: who gets units, and at what price.

-- A packed run begins with these: a list of 10, of which this is the first.
local RUN_HEAD = '\154' .. char(EVENT_RUN)

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

-- The refusal for a buyer who has reached a limit of one. The claim of another account is never named,
-- and a released claim is never called theirs.
local function has_one(latest, user)
    local claim = claim_of(latest)
    if claim and claim[C_USER] ~= user then
        return { REFUSED, 'over_limit', 1, 1 }
    elseif claim and claim[C_STATE] == RELEASED then
        return { REFUSED, 'released' }
    end
    return { REFUSED, 'already_claimed', latest }
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

-- Where the `i`th ends, of which four bytes tell.
local function end_of(ends, i)
    return i == 0 and 0 or struct.unpack('>I4', ends, i * 4 - 3)
end

-- The own parts of the picked claims, one behind the other. Making strings in Lua costs by the byte, so
-- a run of neighbours is cut out as one piece.
local function own_of(own, ends, picked, from, to)
    local first, last = picked[from], picked[to]
    if last - first == to - from then
        local start, through = end_of(ends, first - 1) + 1, end_of(ends, last)
        return start == 1 and through == #own and own or sub(own, start, through)
    end
    local parts = {}
    for i = from, to do
        parts[#parts + 1] = sub(own, end_of(ends, picked[i] - 1) + 1, end_of(ends, picked[i]))
    end
    return table.concat(parts)
end

-- How a packed run begins, up to the text that ends it.
local function run_head(first, alike, own)
    return RUN_HEAD .. pack(first) .. alike .. struct.pack('>BI4', 219, #own)
end

-- Keeps and logs those picked as a run that begins with this number. `alike` is what they share,
-- packed.
local function grant(own, ends, picked, first, alike)
    local count, step, last, i = #picked, rules.buckets, #granted, 1
    local place = (first - 1 - rules.bucket) / step
    while i <= count do
        local n, through = first + (i - 1) * step, i
        local field = nil
        if (place + i - 1) % BLOCK == 0 and i + BLOCK - 1 <= count then
            field, through = block_of(n), i + BLOCK - 1
        else
            field = field_of(n)
        end
        local part = own_of(own, ends, picked, i, through)
        granted[last + 1], granted[last + 2] = field, run_head(n, alike, part) .. part
        last, i = last + 2, through + 1
    end
    local all = own_of(own, ends, picked, 1, count)
    log(run_head(first, alike, all), count)
    log(all, 0)
end

-- Lists of claims so far.
local lists = 0

-- Claims, one after the other, as lists of equal length:
--   names[i]  whose quota claim i uses; empty = nobody's
--   keys[i]   user and request id, packed; empty = no request id. No list if no claim has one
--   units[i]  how many units it wants. No list if every claim wants one
--   ends[i]   where claim i ends in the text that a run keeps
--
-- Answers the price, the number of the first claim granted, and in order how many were granted for
-- that price, numbered one behind the other, or what one of them is told instead.
function decide.claims(c)
    local names, keys, quantities, ends = c[2], c[3], c[4], c[5]
    local count, replies = #names, {}
    lists = lists + 1
    local own = ARGV[lists + 1]
    if not state or state.cleared == 1 then
        local refused = { REFUSED, state and 'cleared' or 'no_such_pool' }
        for i = 1, count do
            replies[i] = refused
        end
        return { 0, 0, replies }
    end
    if state.server ~= server then
        meet_server()
    end
    local found = redis.call('HMGET', BUYERS, unpack(names))
    local with_keys, with_quantities = #keys > 0, #quantities > 0
    local found_keys = with_keys and redis.call('HMGET', REQUESTS, unpack(keys))
    local refused, sold_out = barred(), { REFUSED, 'sold_out' }
    local portions, steps = rules.portions > 0, #rules.steps > 0
    local buckets, available = rules.buckets, state.available
    local first_number = state.claims * buckets + rules.bucket + 1
    local n = first_number
    local buyers, bought = buyers, bought
    local last_bought, last_requested, last_reply, in_a_row = #bought, #requested, 0, 0
    local price, portion = price_at(available), -1
    local usual, free_units = price, 0
    local first, hold_until, pay_by, due = PAID, -1, -1, -1
    local picked, last_picked, run_first, alike = {}, 0, n, nil
    local function end_run()
        if last_picked > 0 then
            grant(own, ends, picked, run_first, alike)
        end
        picked, last_picked, run_first, alike = {}, 0, n, nil
    end
    -- Most are granted as all others are; each step spared them counts.
    local looks_at_latest = rules.limit == 1 and (rules.by_identity == 1 or rules.never == 1)
    local careful = refused or with_keys or with_quantities or portions or steps
    local from, shared = neighbours(n)
    for i = 1, count do
        local name, quantity, used, key, reply, granted = names[i], 1, 1, '', nil, true
        local buyer = buyers[name] or found[i]
        if careful or buyer or available < 1 or name == '' then
            if with_quantities then
                quantity = quantities[i]
            end
            if with_keys then
                key = keys[i]
            end
            used, reply = quantity, refused
            local before = key ~= '' and (requests[key] or found_keys[i])
            if before then
                end_run()
                reply = repeat_claim(number_in(before), quantity)
            elseif not refused then
                if name == '' then
                    reply = { REFUSED, 'not_eligible' }
                elseif buyer then
                    local latest, had = read_buyer(buyer)
                    used = had + quantity
                    reply = check_limit(latest, had, quantity)
                    if looks_at_latest and had == 1 then
                        end_run()
                        local mine = own_of(own, ends, { i }, 1, 1)
                        reply = has_one(latest, (unpack_value(mine)))
                    end
                elseif quantity > 1 then
                    reply = check_limit(nil, 0, quantity)
                end
                if not reply and quantity > available then
                    reply = sold_out
                end
            end
            granted = not reply
            if granted and (portions or steps) then
                local last_price = price
                if portions then
                    portion, price = next_portion()
                    take_portion(portion)
                else
                    price = price_at(available)
                end
                if portions or price ~= last_price then
                    end_run()
                end
                if portions or price ~= usual then
                    reply = { DONE, n, price, portion }
                end
            end
        end
        if granted then
            if not alike then
                first, hold_until, pay_by = first_state(price)
                due = math.max(due, hold_until, pay_by)
                alike = pack(buckets, price, portion, first, now, hold_until, pay_by)
            end
            last_picked = last_picked + 1
            picked[last_picked] = i
            if n - from > 255 then
                from, shared = neighbours(n)
            end
            local field = shared .. char(n - from)
            if key ~= '' then
                requests[key] = field
                requested[last_requested + 1], requested[last_requested + 2] = key, field
                last_requested = last_requested + 2
            end
            buyer = used == 1 and field or write_buyer(field, used)
            buyers[name] = buyer
            bought[last_bought + 1], bought[last_bought + 2] = name, buyer
            last_bought = last_bought + 2
            available = available - quantity
            if first == PAID then
                free_units = free_units + quantity
            end
            n = n + buckets
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
    end_run()
    if n > first_number and due >= 0 then
        add_due(first_number, n - buckets, due)
    end
    state.claims = (n - rules.bucket - 1) / buckets
    local taken = state.available - available
    count_taken(PAID, free_units)
    count_taken(rules.flow == 2 and HELD or ORDERED, taken - free_units)
    return { usual, first_number, replies }
end
