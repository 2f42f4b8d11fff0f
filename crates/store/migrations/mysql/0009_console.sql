-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- What a console looks for: claims and orders by time, user, state and sale, newest first.
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX claims_by_time ON claims (created_at, sale_id, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'claims_by_time');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX claims_by_user ON claims (user_id, created_at, sale_id, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'claims_by_user');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX claims_by_state ON claims (state, created_at, sale_id, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'claims_by_state');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX claims_by_sale ON claims (sale_id, created_at, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'claims_by_sale');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX orders_by_time ON orders (created_at, sale_id, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'orders_by_time');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX orders_by_status ON orders (status, created_at, sale_id, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'orders_by_status');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;
SET @make = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX orders_by_sale ON orders (sale_id, created_at, number)', 'DO 0')
    FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'orders_by_sale');
PREPARE make FROM @make;
EXECUTE make;
DEALLOCATE PREPARE make;

-- Every change that an admin made over HTTP, whatever became of it.
CREATE TABLE IF NOT EXISTS actions (
    id               BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL,
    user_id          VARCHAR(64) NOT NULL,
    role             VARCHAR(16) NOT NULL, -- what they may do: admin
    method           VARCHAR(16) NOT NULL, -- POST, PUT, DELETE
    route            VARCHAR(255) NOT NULL, -- /api/v1/sales/{sale_id}/close
    thing            VARCHAR(200), -- what it was about: the parts of the address that vary
    status           BIGINT, -- of the answer; NULL: nobody waited for it
    code             VARCHAR(64), -- of the problem that was the answer
    request_id       VARCHAR(128), -- its Idempotency-Key
    note             VARCHAR(200), -- why, in the words of whoever did it
    INDEX actions_by_time (at, id),
    INDEX actions_by_user (user_id, at, id),
    INDEX actions_by_thing (thing, at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- What the last audits found.
CREATE TABLE IF NOT EXISTS audits (
    id               BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL, -- when it began
    result           VARCHAR(16) NOT NULL, -- agree, differ, unfinished
    how              VARCHAR(16) NOT NULL, -- asked, repair, by_itself
    user_id          VARCHAR(64), -- who asked
    took_ms          BIGINT NOT NULL,
    sales            BIGINT NOT NULL, -- how many of each were looked at
    claims           BIGINT NOT NULL,
    orders           BIGINT NOT NULL,
    payments         BIGINT NOT NULL,
    refunds          BIGINT NOT NULL,
    difference_count BIGINT NOT NULL,
    pending_reviews  BIGINT NOT NULL,
    differences      MEDIUMTEXT NOT NULL, -- the first of them, as JSON
    error            TEXT, -- why it was not finished
    INDEX audits_by_time (at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
