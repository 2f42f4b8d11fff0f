-- A payment id counts once in its pool. That it was used in another pool is found in the records.

CREATE TABLE engine_payments_of_pools (
    pool_id      BIGINT  NOT NULL,
    payment_id   TEXT    NOT NULL,
    place        BIGINT  NOT NULL,
    order_number BIGINT  NOT NULL,
    claim        BIGINT, -- the claim it paid, or ...
    amount_cents BIGINT, -- ... what goes back
    reason       TEXT, -- late, already_paid, amount_mismatch
    at           BIGINT,
    PRIMARY KEY (pool_id, payment_id),
    UNIQUE (pool_id, place)
) WITHOUT ROWID;

INSERT INTO engine_payments_of_pools
    (pool_id, payment_id, place, order_number, claim, amount_cents, reason, at)
SELECT pool_id, payment_id, place, order_number, claim, amount_cents, reason, at
FROM engine_payments ORDER BY pool_id, payment_id;

DROP TABLE engine_payments;

ALTER TABLE engine_payments_of_pools RENAME TO engine_payments;
