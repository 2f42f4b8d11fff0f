-- The records of what the engine decided. Every row is a function of the newest event about it,
-- except refunds.status and refunds.settled_at, settings, positions, and leases.
--
-- Times are Unix milliseconds, money is cents, enums are the words of qiang-core. Texts
-- that are compared or sorted are so byte by byte.
--
-- There are no foreign keys: the rows of a claim are written in one transaction, from one value,
-- by one function that has checked the sale, and locks on the sale would make others wait.

CREATE TABLE sales (
    id               BIGINT           NOT NULL PRIMARY KEY,
    version          BIGINT           NOT NULL,
    state            TEXT             NOT NULL,   -- open, closed, cleared
    title            TEXT             NOT NULL,
    sku              TEXT             NOT NULL,
    units            BIGINT,                      -- either units ...
    portions         TEXT,                        -- ... or portions: JSON [cents, ...]
    limit_per_user   BIGINT           NOT NULL,
    limit_by         TEXT             NOT NULL,   -- user, identity
    price_cents      BIGINT           NOT NULL,
    price_steps      TEXT             NOT NULL,   -- JSON [[after_sold, price_cents], ...]
    opens_at         BIGINT           NOT NULL,
    closes_at        BIGINT,
    flow             TEXT             NOT NULL,   -- instant, order, hold
    hold_ms          BIGINT,
    pay_ms           BIGINT,
    reclaim          TEXT             NOT NULL,   -- allowed, never
    total            BIGINT           NOT NULL,
    closed_at        BIGINT,
    cleared_at       BIGINT,
    changed_at       BIGINT           NOT NULL,
    buckets          BIGINT           NOT NULL DEFAULT 1
);

CREATE TABLE claims (
    sale_id          BIGINT           NOT NULL,
    number           BIGINT           NOT NULL,
    user_id          TEXT COLLATE "C" NOT NULL,
    identity         TEXT,
    request_id       TEXT,
    quantity         BIGINT           NOT NULL,
    unit_price_cents BIGINT           NOT NULL,
    portion          BIGINT,
    state            TEXT             NOT NULL,   -- held, ordered, paid, released
    version          BIGINT           NOT NULL,
    created_at       BIGINT           NOT NULL,
    changed_at       BIGINT           NOT NULL,
    hold_until       BIGINT,
    pay_by           BIGINT,
    payment_id       TEXT COLLATE "C",
    replaces         BIGINT,
    reason           TEXT,
    PRIMARY KEY (sale_id, number)
);

-- An order has the key of its claim, and exists once an order was placed for the claim.
CREATE TABLE orders (
    sale_id          BIGINT           NOT NULL,
    number           BIGINT           NOT NULL,
    user_id          TEXT COLLATE "C" NOT NULL,
    status           TEXT COLLATE "C" NOT NULL,   -- PENDING, PAID, CANCELLED
    amount_cents     BIGINT           NOT NULL,
    created_at       BIGINT           NOT NULL,
    pay_by           BIGINT,
    paid_at          BIGINT,
    cancelled_at     BIGINT,
    version          BIGINT           NOT NULL,
    PRIMARY KEY (sale_id, number)
);

CREATE INDEX orders_by_user ON orders (user_id, created_at, sale_id, number);

CREATE TABLE order_items (
    sale_id          BIGINT           NOT NULL,
    number           BIGINT           NOT NULL,
    line             BIGINT           NOT NULL,
    sku              TEXT             NOT NULL,
    title            TEXT             NOT NULL,
    quantity         BIGINT           NOT NULL,
    unit_price_cents BIGINT           NOT NULL,
    PRIMARY KEY (sale_id, number, line)
);

-- Every payment that paid an order.
CREATE TABLE payments (
    sale_id          BIGINT           NOT NULL,
    payment_id       TEXT COLLATE "C" NOT NULL,
    number           BIGINT           NOT NULL,
    amount_cents     BIGINT           NOT NULL,
    paid_at          BIGINT           NOT NULL,
    PRIMARY KEY (sale_id, payment_id)
);

-- Every payment that bought nothing and goes back. It may be known before its order is.
CREATE TABLE refunds (
    sale_id          BIGINT           NOT NULL,
    payment_id       TEXT COLLATE "C" NOT NULL,
    number           BIGINT           NOT NULL,
    amount_cents     BIGINT           NOT NULL,
    reason           TEXT             NOT NULL,   -- late, already_paid, amount_mismatch
    due_at           BIGINT           NOT NULL,
    status           TEXT COLLATE "C" NOT NULL,   -- due, settled
    settled_at       BIGINT,
    PRIMARY KEY (sale_id, payment_id)
);

CREATE INDEX refunds_by_status ON refunds (status, due_at, sale_id, payment_id);

-- How far each consumer of the log has come; moved in the transaction that writes the rows.
CREATE TABLE positions (
    consumer         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    seq              BIGINT           NOT NULL
);

CREATE TABLE settings (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value            TEXT             NOT NULL
);

-- Who does what of which only one may be at work, until when by the database's own clock.
CREATE TABLE leases (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner            TEXT COLLATE "C" NOT NULL,
    until_ms         BIGINT           NOT NULL
);

-- Every change of a sale as a whole, so that an engine that was lost can be made anew.
CREATE TABLE sale_changes (
    sale_id          BIGINT           NOT NULL,
    version          BIGINT           NOT NULL,
    kind             TEXT COLLATE "C" NOT NULL, -- opened, restocked, closed, cleared
    units            BIGINT,
    request_id       TEXT COLLATE "C",
    total            BIGINT           NOT NULL,
    closed_at        BIGINT,
    changed_at       BIGINT           NOT NULL,
    PRIMARY KEY (sale_id, version)
);
