-- Units move between the buckets of a pool in three steps, each of which may be repeated: lent
-- here under a number, received there once under that number, and then settled here.

-- What left here and has not been settled.
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
        write('HSET', MOVES, field, pack(last))
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
        write('HSET', MOVES, field, c[3])
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
        write('HSET', MOVES, field, pack({ c[3], 0 }))
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
