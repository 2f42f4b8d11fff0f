-- Red packets. The money of a packet is on its own account; these rows say what it is for. Nobody outside may read
-- seed before the packet is over: all its portions follow from it.
CREATE TABLE packets (
    pool_id          BIGINT NOT NULL PRIMARY KEY,
    random_part      TEXT COLLATE "C"   NOT NULL, -- what nobody can guess of the public id <pool_id>-<random_part>
    request_key      TEXT COLLATE "C"   NOT NULL, -- of the request that sent it, with whose it was
    request_hash     TEXT COLLATE "C"   NOT NULL, -- what was asked, but for the password
    sender           TEXT COLLATE "C"   NOT NULL,
    kind             TEXT COLLATE "C"   NOT NULL, -- lucky, fixed
    total_cents      BIGINT NOT NULL,
    shares           BIGINT NOT NULL,
    nonce            BYTEA  NOT NULL,
    seed             BYTEA  NOT NULL,
    commitment       BYTEA  NOT NULL,
    greeting         TEXT COLLATE "C"   NOT NULL,
    cover            TEXT COLLATE "C",
    recipients       TEXT COLLATE "C", -- a JSON list of users; NULL is everybody
    password_hash    TEXT COLLATE "C", -- salt and HMAC; NULL is none
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    opened_at        BIGINT, -- when it could first be grabbed
    grabs            BIGINT NOT NULL,
    grabbed_cents    BIGINT NOT NULL,
    last_grab_at     BIGINT,
    refunded_cents   BIGINT NOT NULL,
    recycled_at      BIGINT, -- when it was over, and what was left went back
    next_at          BIGINT -- when it is recycled, and after that cleared away; NULL is never
);

CREATE UNIQUE INDEX packets_by_request ON packets (request_key);
CREATE INDEX packets_by_sender ON packets (sender, created_at, pool_id);
CREATE INDEX packets_by_next ON packets (next_at);

-- Who took what, in order. Written with the credit to their account.
CREATE TABLE packet_grabs (
    pool_id          BIGINT NOT NULL,
    number           BIGINT NOT NULL,
    user_id          TEXT COLLATE "C"   NOT NULL,
    place            BIGINT NOT NULL, -- its place in the cut, from 0
    amount_cents     BIGINT NOT NULL,
    at               BIGINT NOT NULL,
    PRIMARY KEY (pool_id, number)
);

CREATE INDEX packet_grabs_by_user ON packet_grabs (user_id, at, pool_id, number);

-- Grabs whose money still is on the packet's account, because the grabber's account could not take more.
CREATE TABLE packet_grabs_waiting (
    pool_id          BIGINT NOT NULL,
    number           BIGINT NOT NULL,
    PRIMARY KEY (pool_id, number)
);

-- What each user has sent on a day, for the limits.
CREATE TABLE packet_days (
    day              BIGINT NOT NULL, -- since 1970-01-01, by the configured time zone
    user_id          TEXT COLLATE "C"   NOT NULL,
    cents            BIGINT NOT NULL,
    packets          BIGINT NOT NULL,
    PRIMARY KEY (day, user_id)
);

-- How often a user has tried the password of a packet.
CREATE TABLE packet_attempts (
    pool_id          BIGINT NOT NULL,
    user_id          TEXT COLLATE "C"   NOT NULL,
    attempts         BIGINT NOT NULL,
    PRIMARY KEY (pool_id, user_id)
);

-- Seeds whose hash a sender was shown and that no packet uses yet.
CREATE TABLE packet_seeds (
    seed_id          TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    user_id          TEXT COLLATE "C"   NOT NULL,
    seed             BYTEA  NOT NULL,
    created_at       BIGINT NOT NULL
);

CREATE INDEX packet_seeds_by_age ON packet_seeds (created_at);
