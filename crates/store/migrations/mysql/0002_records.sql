-- The records of what the engine decided. Every row is a function of the newest event about it,
-- except refunds.status and refunds.settled_at, settings, positions, and leases.
--
-- Times are Unix milliseconds, money is cents, enums are the words of qiang-core. Texts are
-- compared byte by byte. Lengths are in characters; what has a limit in bytes has the same here.
--
-- A CREATE commits by itself, so this is written to be run again if it was cut off.
-- There are no foreign keys: the rows of a claim are written in one transaction, from one value,
-- by one function that has checked the sale, and locks on the sale would make others wait.

CREATE TABLE IF NOT EXISTS sales (
    id               BIGINT       NOT NULL PRIMARY KEY,
    version          BIGINT       NOT NULL,
    state            VARCHAR(16)  NOT NULL, -- open, closed, cleared
    title            VARCHAR(200) NOT NULL,
    sku              VARCHAR(64)  NOT NULL,
    units            BIGINT,                -- either units ...
    portions         MEDIUMTEXT,            -- ... or portions: JSON [cents, ...]
    limit_per_user   BIGINT       NOT NULL,
    limit_by         VARCHAR(16)  NOT NULL, -- user, identity
    price_cents      BIGINT       NOT NULL,
    price_steps      TEXT         NOT NULL, -- JSON [[after_sold, price_cents], ...]
    opens_at         BIGINT       NOT NULL,
    closes_at        BIGINT,
    flow             VARCHAR(16)  NOT NULL, -- instant, order, hold
    hold_ms          BIGINT,
    pay_ms           BIGINT,
    reclaim          VARCHAR(16)  NOT NULL, -- allowed, never
    total            BIGINT       NOT NULL,
    closed_at        BIGINT,
    cleared_at       BIGINT,
    changed_at       BIGINT       NOT NULL,
    buckets          BIGINT       NOT NULL DEFAULT 1
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS claims (
    sale_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    user_id          VARCHAR(64)  NOT NULL,
    identity         VARCHAR(64),
    request_id       VARCHAR(128),
    quantity         BIGINT       NOT NULL,
    unit_price_cents BIGINT       NOT NULL,
    "portion"        BIGINT,                -- a word that MariaDB has reserved
    state            VARCHAR(16)  NOT NULL, -- held, ordered, paid, released
    version          BIGINT       NOT NULL,
    created_at       BIGINT       NOT NULL,
    changed_at       BIGINT       NOT NULL,
    hold_until       BIGINT,
    pay_by           BIGINT,
    payment_id       VARCHAR(128),
    replaces         BIGINT,
    reason           VARCHAR(16),
    PRIMARY KEY (sale_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- An order has the key of its claim, and exists once an order was placed for the claim.
CREATE TABLE IF NOT EXISTS orders (
    sale_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    user_id          VARCHAR(64)  NOT NULL,
    status           VARCHAR(16)  NOT NULL, -- PENDING, PAID, CANCELLED
    amount_cents     BIGINT       NOT NULL,
    created_at       BIGINT       NOT NULL,
    pay_by           BIGINT,
    paid_at          BIGINT,
    cancelled_at     BIGINT,
    version          BIGINT       NOT NULL,
    PRIMARY KEY (sale_id, number),
    INDEX orders_by_user (user_id, created_at, sale_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS order_items (
    sale_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    line             BIGINT       NOT NULL,
    sku              VARCHAR(64)  NOT NULL,
    title            VARCHAR(200) NOT NULL,
    quantity         BIGINT       NOT NULL,
    unit_price_cents BIGINT       NOT NULL,
    PRIMARY KEY (sale_id, number, line)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Every payment that paid an order.
CREATE TABLE IF NOT EXISTS payments (
    sale_id          BIGINT       NOT NULL,
    payment_id       VARCHAR(128) NOT NULL,
    number           BIGINT       NOT NULL,
    amount_cents     BIGINT       NOT NULL,
    paid_at          BIGINT       NOT NULL,
    PRIMARY KEY (sale_id, payment_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Every payment that bought nothing and goes back. It may be known before its order is.
CREATE TABLE IF NOT EXISTS refunds (
    sale_id          BIGINT       NOT NULL,
    payment_id       VARCHAR(128) NOT NULL,
    number           BIGINT       NOT NULL,
    amount_cents     BIGINT       NOT NULL,
    reason           VARCHAR(16)  NOT NULL, -- late, already_paid, amount_mismatch
    due_at           BIGINT       NOT NULL,
    status           VARCHAR(16)  NOT NULL, -- due, settled
    settled_at       BIGINT,
    PRIMARY KEY (sale_id, payment_id),
    INDEX refunds_by_status (status, due_at, sale_id, payment_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- How far each consumer of the log has come; moved in the transaction that writes the rows.
CREATE TABLE IF NOT EXISTS positions (
    consumer         VARCHAR(128) NOT NULL PRIMARY KEY,
    seq              BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS settings (
    name             VARCHAR(128) NOT NULL PRIMARY KEY,
    value            MEDIUMTEXT   NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Who does what of which only one may be at work, until when by the database's own clock.
CREATE TABLE IF NOT EXISTS leases (
    name             VARCHAR(128) NOT NULL PRIMARY KEY,
    owner            VARCHAR(128) NOT NULL,
    until_ms         BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Every change of a sale as a whole, so that an engine that was lost can be made anew.
CREATE TABLE IF NOT EXISTS sale_changes (
    sale_id          BIGINT       NOT NULL,
    version          BIGINT       NOT NULL,
    kind             VARCHAR(16)  NOT NULL, -- opened, restocked, closed, cleared
    units            BIGINT,
    request_id       VARCHAR(128),
    total            BIGINT       NOT NULL,
    closed_at        BIGINT,
    changed_at       BIGINT       NOT NULL,
    PRIMARY KEY (sale_id, version)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
