-- What a console looks for: claims and orders by time, user, state and sale, newest first.
CREATE INDEX claims_by_time ON claims (created_at, sale_id, number);
CREATE INDEX claims_by_user ON claims (user_id, created_at, sale_id, number);
CREATE INDEX claims_by_state ON claims (state, created_at, sale_id, number);
CREATE INDEX claims_by_sale ON claims (sale_id, created_at, number);
CREATE INDEX orders_by_time ON orders (created_at, sale_id, number);
CREATE INDEX orders_by_status ON orders (status, created_at, sale_id, number);
CREATE INDEX orders_by_sale ON orders (sale_id, created_at, number);

-- Every change that an admin made over HTTP, whatever became of it.
CREATE TABLE actions (
    id               BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL,
    user_id          TEXT   NOT NULL,
    role             TEXT   NOT NULL, -- what they may do: admin
    method           TEXT   NOT NULL, -- POST, PUT, DELETE
    route            TEXT   NOT NULL, -- /api/v1/sales/{sale_id}/close
    thing            TEXT, -- what it was about: the parts of the address that vary
    status           BIGINT, -- of the answer; NULL: nobody waited for it
    code             TEXT, -- of the problem that was the answer
    request_id       TEXT, -- its Idempotency-Key
    note             TEXT -- why, in the words of whoever did it
);

CREATE INDEX actions_by_time ON actions (at, id);
CREATE INDEX actions_by_user ON actions (user_id, at, id);
CREATE INDEX actions_by_thing ON actions (thing, at, id);

-- What the last audits found.
CREATE TABLE audits (
    id               BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL, -- when it began
    result           TEXT   NOT NULL, -- agree, differ, unfinished
    how              TEXT   NOT NULL, -- asked, repair, by_itself
    user_id          TEXT, -- who asked
    took_ms          BIGINT NOT NULL,
    sales            BIGINT NOT NULL, -- how many of each were looked at
    claims           BIGINT NOT NULL,
    orders           BIGINT NOT NULL,
    payments         BIGINT NOT NULL,
    refunds          BIGINT NOT NULL,
    difference_count BIGINT NOT NULL,
    pending_reviews  BIGINT NOT NULL,
    differences      TEXT   NOT NULL, -- the first of them, as JSON
    error            TEXT -- why it was not finished
);

CREATE INDEX audits_by_time ON audits (at, id);
