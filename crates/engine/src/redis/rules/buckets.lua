-- Units move between the buckets of a pool in three steps, each of which may be repeated: lent here
-- under a number, received there once under that number, and then settled here. Lending and receiving
-- are events, so that a partition that has forgotten one is behind its log; and both sides keep the
-- number and the lender's position, so that each can tell that the other has forgotten.
--
-- MOVES  to:<bucket>    { number, units that are not settled, position of the lending }
--        from:<bucket>  { number, position of the lending }

local function move_in(field)
    local move = redis.call('HGET', MOVES, field)
    return move and unpack_value(move)
end

local function log_move(number, from, to, units)
    log(pack({ EVENT_MOVE, number, from, to, units, now }), 1)
end

-- to, units wanted, number that bucket has received from here
function decide.lend(c)
    if not state then
        return { REFUSED, 'no_such_pool' }
    end
    local field = 'to:' .. c[2]
    local last = move_in(field) or { 0, 0, 0 }
    if last[1] < c[4] then
        return { REFUSED, 'gone_back' }
    elseif last[2] == 0 and state.available > 0 then
        local units = math.min(state.available, math.max(c[3], floor(state.available / 2)))
        state.available = state.available - units
        state.share = state.share - units
        log_move(last[1] + 1, rules.bucket, c[2], units)
        last = { last[1] + 1, units, seq + logged }
        write('HSET', MOVES, field, pack(last))
    end
    return { DONE, last[1], last[2], last[3] }
end

-- from, number, units, position of the lending
function decide.receive(c)
    if not state or state.cleared == 1 then
        return { REFUSED, 'no_such_pool' }
    end
    local field = 'from:' .. c[2]
    local last = move_in(field) or { 0, 0 }
    if last[1] == c[3] and last[2] ~= c[5] then
        -- The lender gave this number to other units before.
        return { REFUSED, 'gone_back' }
    elseif last[1] < c[3] then
        state.share = state.share + c[4]
        give_back(c[4])
        log_move(c[3], c[2], rules.bucket, c[4])
        write('HSET', MOVES, field, pack({ c[3], c[5] }))
    end
    return { DONE }
end

-- to, number
function decide.settle(c)
    local field = 'to:' .. c[2]
    local last = move_in(field)
    if last and last[1] == c[3] and last[2] > 0 then
        write('HSET', MOVES, field, pack({ c[3], 0, last[3] }))
        changed = true
    end
    return { DONE }
end

-- What is here, how often units came, and what went out and came in, by bucket.
function decide.stand()
    if not state or state.cleared == 1 then
        return { REFUSED, 'no_such_pool' }
    end
    local sent, received, moves = {}, {}, redis.call('HGETALL', MOVES)
    for i = 1, #moves, 2 do
        local way, bucket = string.match(moves[i], '^(%a+):(%d+)$')
        local move = unpack_value(moves[i + 1])
        if way == 'to' then
            sent[#sent + 1] = { tonumber(bucket), move[1], move[2], move[3] }
        else
            received[#received + 1] = { tonumber(bucket), move[1], move[2] }
        end
    end
    return { DONE, state.available, state.arrived, state.share, state.short, sent, received }
end
