-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Which order has a payment id, over all sales: the one that was paid first. Of two that were paid
-- at the same time it is the one with the lower key, so that it does not matter who was recorded first.
CREATE TABLE IF NOT EXISTS payment_ids (
    payment_id       VARCHAR(128) NOT NULL PRIMARY KEY,
    sale_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    paid_at          BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Orders that a person has to look at: the payment that paid each of them has paid an order of another
-- sale, too. Status and ended_at are known only here.
CREATE TABLE IF NOT EXISTS reviews (
    sale_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL,
    payment_id       VARCHAR(128) NOT NULL,
    paid_at          BIGINT       NOT NULL,
    other_sale_id    BIGINT       NOT NULL, -- the order that has the payment id
    other_number     BIGINT       NOT NULL,
    status           VARCHAR(16)  NOT NULL, -- pending, ended
    ended_at         BIGINT,
    PRIMARY KEY (sale_id, number),
    INDEX reviews_by_status (status, paid_at, sale_id, number),
    INDEX reviews_by_payment (payment_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

INSERT INTO payment_ids (payment_id, sale_id, number, paid_at)
SELECT payment_id, sale_id, number, paid_at
FROM (
    SELECT payment_id, sale_id, number, paid_at,
        ROW_NUMBER() OVER (PARTITION BY payment_id ORDER BY paid_at, sale_id, number) AS place
    FROM payments
) AS ranked
WHERE place = 1
ON DUPLICATE KEY UPDATE number = payment_ids.number;

INSERT INTO reviews
    (sale_id, number, payment_id, paid_at, other_sale_id, other_number, status)
SELECT p.sale_id, p.number, p.payment_id, p.paid_at, i.sale_id, i.number, 'pending'
FROM payments AS p JOIN payment_ids AS i ON i.payment_id = p.payment_id
WHERE p.sale_id <> i.sale_id
ON DUPLICATE KEY UPDATE number = reviews.number;
