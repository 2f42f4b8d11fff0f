-- The engine whose state is a database: pools, claims, and the log of what was decided.
--
-- Times are Unix milliseconds, money is cents, enums are the words of qiang-core. Only the engine
-- writes here, with the row of the pool's partition locked: it puts everything of a partition in
-- one order, and gives the log positions without gaps. Names are compared byte by byte.
-- Everything can be run again from the beginning, should it have been cut off.

-- Small numbers with a name.
CREATE TABLE IF NOT EXISTS engine_settings (
    name  VARCHAR(64)  NOT NULL,
    value BIGINT       NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- How often an engine was opened on this database; each takes the next number as its name.
INSERT INTO engine_settings (name, value) VALUES ('callers', 0)
    ON DUPLICATE KEY UPDATE value = value;

CREATE TABLE IF NOT EXISTS engine_partitions (
    id      BIGINT       NOT NULL,
    seq     BIGINT       NOT NULL, -- position of the last event
    trimmed BIGINT       NOT NULL, -- events up to here are gone
    at      BIGINT       NOT NULL, -- time of the last decision that changed something
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- The last transaction of each caller on each partition, so that one whose connection broke in
-- the middle of a commit can tell whether it happened.
CREATE TABLE IF NOT EXISTS engine_calls (
    partition_id BIGINT       NOT NULL,
    caller       BIGINT       NOT NULL,
    number       BIGINT       NOT NULL,
    at           BIGINT       NOT NULL,
    PRIMARY KEY (partition_id, caller)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS engine_log (
    partition_id BIGINT       NOT NULL,
    seq          BIGINT       NOT NULL,
    event        LONGBLOB     NOT NULL,
    PRIMARY KEY (partition_id, seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS engine_pools (
    id             BIGINT       NOT NULL,
    version        BIGINT       NOT NULL,
    last_change    VARCHAR(16)  NOT NULL, -- opened, restocked, closed, cleared
    change_units   BIGINT, -- of a restock
    change_request VARCHAR(128),
    total          BIGINT       NOT NULL,
    available      BIGINT       NOT NULL,
    held           BIGINT       NOT NULL,
    ordered        BIGINT       NOT NULL,
    paid           BIGINT       NOT NULL,
    claims         BIGINT       NOT NULL,
    payments       BIGINT       NOT NULL,
    refunds        BIGINT       NOT NULL,
    next_place     BIGINT       NOT NULL,
    fresh_portion  BIGINT       NOT NULL, -- portions from here on were never taken
    opened_at      BIGINT       NOT NULL,
    closed_at      BIGINT,
    changed_at     BIGINT       NOT NULL,
    to_sweep       BIGINT       NOT NULL, -- 1 while rows of a cleared pool are left to be deleted
    PRIMARY KEY (id),
    CHECK (available >= 0 AND held >= 0 AND ordered >= 0 AND paid >= 0),
    CHECK (last_change = 'cleared' OR available + held + ordered + paid = total),
    KEY engine_pools_newest (opened_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- The rules of a pool, which never change: its first event.
CREATE TABLE IF NOT EXISTS engine_terms (
    pool_id BIGINT       NOT NULL,
    opened  LONGBLOB     NOT NULL,
    PRIMARY KEY (pool_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS engine_restocks (
    pool_id    BIGINT       NOT NULL,
    request_id VARCHAR(128) NOT NULL,
    units      BIGINT       NOT NULL,
    PRIMARY KEY (pool_id, request_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS engine_claims (
    pool_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    user_id          VARCHAR(64)  NOT NULL,
    identity         VARCHAR(64),
    request_key      VARCHAR(193), -- the user, U+001F, and their request: no id has that in it
    quantity         BIGINT       NOT NULL,
    unit_price_cents BIGINT       NOT NULL,
    portion_place    BIGINT,
    state            VARCHAR(16)  NOT NULL, -- held, ordered, paid, released
    version          BIGINT       NOT NULL,
    created_at       BIGINT       NOT NULL,
    changed_at       BIGINT       NOT NULL,
    hold_until       BIGINT,
    pay_by           BIGINT,
    payment_id       VARCHAR(128),
    replaces         BIGINT,
    replaced_by      BIGINT,
    reason           VARCHAR(16),
    due              BIGINT, -- when it is released unless something happens
    PRIMARY KEY (pool_id, number),
    UNIQUE (pool_id, request_key),
    KEY engine_claims_due (pool_id, due, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- What counts against the limit of a user, or of a person.
CREATE TABLE IF NOT EXISTS engine_buyers (
    pool_id BIGINT       NOT NULL,
    name    VARCHAR(64)  NOT NULL,
    latest  BIGINT       NOT NULL,
    used    BIGINT       NOT NULL,
    PRIMARY KEY (pool_id, name),
    CHECK (used >= 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Every portion that was ever taken, and the claim that has it; 0 is nobody.
CREATE TABLE IF NOT EXISTS engine_portions (
    pool_id BIGINT       NOT NULL,
    place   BIGINT       NOT NULL,
    claim   BIGINT       NOT NULL,
    PRIMARY KEY (pool_id, place),
    KEY engine_portions_free (pool_id, claim, place)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- A payment counts once, whatever it was for.
CREATE TABLE IF NOT EXISTS engine_payments (
    payment_id   VARCHAR(128) NOT NULL,
    pool_id      BIGINT       NOT NULL,
    place        BIGINT       NOT NULL,
    order_number BIGINT       NOT NULL,
    claim        BIGINT, -- the claim it paid, or ...
    amount_cents BIGINT, -- ... what goes back
    reason       VARCHAR(16), -- late, already_paid, amount_mismatch
    at           BIGINT,
    PRIMARY KEY (payment_id),
    UNIQUE (pool_id, place)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
