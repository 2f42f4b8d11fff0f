-- The rules of a pool, where its state is: one call decides a list of commands on one pool (or on
-- one bucket of it), one after the other, and writes what they change. A call happens as a whole or
-- not at all: the server refuses a write for want of memory or disk only before the first one.
--
-- The rules are those of `qiang-core`, in its order; equal answers and equal events are what the
-- contract tests demand. Every key is declared and lies in the pool's partition.
--
-- The script is these files, one behind the other: call, state, claims, changes, money, pools,
-- buckets, write. This one: what is asked, and whether it is to be decided at all.
--
-- ARGV[1], packed: { now in ms or -1 for the server's own clock, epoch, known position,
--                    number of the call on its lane, pool id, { command, ... },
--                    1 to keep the answer also if nothing changed,
--                    number of a call of this node that changed something here,
--                    the server that is asked: a number that changes when it starts, or 0 if it forgets
--                    nothing }
-- ARGV[2..]: for each list of claims among the commands, what a run keeps of each of them
-- Answers, packed: { "lost", epoch, position, 1 if a call was carried out in part }
--                                               the state is not the one the caller knows
--                  { "stale" }                   a later call of the lane was here already
--                  { "again", events, released } more is overdue than one call releases
--                  { "ok", position, now, next due or -1, available, grants, { reply, ... },
--                    number of the last call of this node that changed something here, how many
--                    events it logged, how many claims it released because they were overdue }
local META, LOG, POOLS, DUES, POOL, CLAIMS, BUYERS, REQUESTS, PAYMENTS, DUE, REFUNDS, HISTORY,
    RESTOCKS, PORTIONS, RETURNED, MOVES, REFUNDED, PAYERS, LANE, NODE =
    KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10],
    KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19],
    KEYS[20]

-- A claim that is overdue is released before anything else is decided, so many in one call.
local MAX_RELEASED = 512
local MAX_UNITS = 2147483648
local MAX_CHANGES = 10000
-- Numbers of a pool that are left out when another server than before gives them, beside as many as it
-- has units; and the highest number there is.
local LEFT_OUT, MAX_NUMBER = 1048576, 4294967294
-- An answer is kept for whoever asks again because it got lost on the way. It is no limit: a lane
-- gives up asking long before, and what was decided stands in any case.
local KEEP_ANSWER_MS = 600000
-- Seven days; a node trusts it for one.
local KEEP_CHANGE_MS = 604800000

local HELD, ORDERED, PAID, RELEASED = 0, 1, 2, 3
local HOLD_EXPIRED, PAY_EXPIRED, REVOKED = 3, 4, 5
local LATE, ALREADY_PAID, AMOUNT_MISMATCH, LOST_CLAIM, REVOKED_CLAIM = 0, 1, 2, 3, 4
local OPENED, RESTOCKED, CLOSED, CLEARED = 0, 1, 2, 3
local DONE, REPLAYED, REFUSED = 0, 1, 2
local EVENT_CLAIM, EVENT_POOL, EVENT_REFUND, EVENT_RUN, EVENT_MOVE, KEPT_CHANGE = 1, 2, 3, 4, 5, 6
-- Claims in a block.
local BLOCK = 16

-- A claim: kind, number, user, request, identity, quantity, price, portion, state, version,
-- created, changed, hold until, pay by, payment, replaces, reason, replaced by (not an event's).
local C_NUMBER, C_USER, C_REQUEST, C_IDENTITY, C_QUANTITY, C_PRICE, C_PORTION, C_STATE, C_VERSION,
    C_CREATED, C_CHANGED, C_HOLD, C_PAY_BY, C_PAYMENT, C_REPLACES, C_REASON, C_REPLACED =
    2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
-- Fresh claims, all alike, numbered one behind the other: kind, first number, from one number to the
-- next, price, portion, state, created, hold until, pay by, and of each its user, request, identity
-- and quantity, packed, in one text.
local R_FIRST, R_STEP, R_PRICE, R_PORTION, R_STATE, R_CREATED, R_HOLD, R_PAY_BY, R_OWN =
    2, 3, 4, 5, 6, 7, 8, 9, 10
-- What became of a claim that lies in a block, as it is kept: kind, state, version, changed and pay by,
-- both counted from when it was created (or -1), payment, reason, replaced by.
local K_STATE, K_VERSION, K_CHANGED, K_PAY_BY, K_PAYMENT, K_REASON, K_REPLACED = 2, 3, 4, 5, 6, 7, 8

local pack, unpack_value = cmsgpack.pack, cmsgpack.unpack
local call = unpack_value(ARGV[1])
local now, epoch, known, number, pool_id, commands, keep, confirmed, server =
    call[1], call[2], call[3], call[4], call[5], call[6], call[7] == 1, call[8], call[9]

local meta = redis.call('HMGET', META, 'epoch', 'seq', 'at', 'begun', 'ended')
local seq = tonumber(meta[2] or '0')
-- A position cannot show that a state went back if other nodes have written since. So each node also
-- keeps the number of its own last change.
local last_change = tonumber(redis.call('GET', NODE) or '0')
local torn = meta[4] ~= meta[5]
if meta[1] ~= epoch or seq < known or last_change < confirmed or torn then
    return pack({ 'lost', meta[1] or '', seq, torn and 1 or 0 })
end
local answered = redis.call('GET', LANE)
if answered then
    answered = unpack_value(answered)
    if answered[1] == number then
        -- Whoever waits for replicas waits for the last write of its own connection.
        if keep then
            redis.call('PEXPIRE', LANE, KEEP_ANSWER_MS)
        end
        return answered[2]
    elseif answered[1] > number then
        return pack({ 'stale' })
    end
end
if now < 0 then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
now = math.max(now, tonumber(meta[3] or '0'))

-- A crash may leave half a call at the end of the server's append-only file. Some servers cut off only
-- its last command and run the rest at the next start. So each call that writes sets `begun` first and
-- `ended` last: where they differ, half a call was run.
local begun = nil
local function write(...)
    if not begun then
        begun = redis.call('HINCRBY', META, 'begun', 1)
    end
    return redis.call(...)
end
