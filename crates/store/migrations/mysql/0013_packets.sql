-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Red packets. The money of a packet is on its own account; these rows say what it is for. Nobody outside may read
-- seed before the packet is over: all its portions follow from it.
CREATE TABLE IF NOT EXISTS packets (
    pool_id          BIGINT NOT NULL PRIMARY KEY,
    random_part      VARCHAR(20) NOT NULL, -- what nobody can guess of the public id <pool_id>-<random_part>
    request_key      VARCHAR(255) NOT NULL, -- of the request that sent it, with whose it was
    request_hash     VARCHAR(64) NOT NULL, -- what was asked, but for the password
    sender           VARCHAR(64) NOT NULL,
    kind             VARCHAR(16) NOT NULL, -- lucky, fixed
    total_cents      BIGINT NOT NULL,
    shares           BIGINT NOT NULL,
    nonce            BLOB NOT NULL,
    seed             BLOB NOT NULL,
    commitment       BLOB NOT NULL,
    greeting         VARCHAR(200) NOT NULL,
    cover            VARCHAR(200),
    recipients       MEDIUMTEXT, -- a JSON list of users; NULL is everybody
    password_hash    VARCHAR(128), -- salt and HMAC; NULL is none
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    opened_at        BIGINT, -- when it could first be grabbed
    grabs            BIGINT NOT NULL,
    grabbed_cents    BIGINT NOT NULL,
    last_grab_at     BIGINT,
    refunded_cents   BIGINT NOT NULL,
    recycled_at      BIGINT, -- when it was over, and what was left went back
    next_at          BIGINT, -- when it is recycled, and after that cleared away; NULL is never
    UNIQUE INDEX packets_by_request (request_key),
    INDEX packets_by_sender (sender, created_at, pool_id),
    INDEX packets_by_next (next_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Who took what, in order. Written with the credit to their account.
CREATE TABLE IF NOT EXISTS packet_grabs (
    pool_id          BIGINT NOT NULL,
    number           BIGINT NOT NULL,
    user_id          VARCHAR(64) NOT NULL,
    place            BIGINT NOT NULL, -- its place in the cut, from 0
    amount_cents     BIGINT NOT NULL,
    at               BIGINT NOT NULL,
    PRIMARY KEY (pool_id, number),
    INDEX packet_grabs_by_user (user_id, at, pool_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Grabs whose money still is on the packet's account, because the grabber's account could not take more.
CREATE TABLE IF NOT EXISTS packet_grabs_waiting (
    pool_id          BIGINT NOT NULL,
    number           BIGINT NOT NULL,
    PRIMARY KEY (pool_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- What each user has sent on a day, for the limits.
CREATE TABLE IF NOT EXISTS packet_days (
    day              BIGINT NOT NULL, -- since 1970-01-01, by the configured time zone
    user_id          VARCHAR(64) NOT NULL,
    cents            BIGINT NOT NULL,
    packets          BIGINT NOT NULL,
    PRIMARY KEY (day, user_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- How often a user has tried the password of a packet.
CREATE TABLE IF NOT EXISTS packet_attempts (
    pool_id          BIGINT NOT NULL,
    user_id          VARCHAR(64) NOT NULL,
    attempts         BIGINT NOT NULL,
    PRIMARY KEY (pool_id, user_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Seeds whose hash a sender was shown and that no packet uses yet.
CREATE TABLE IF NOT EXISTS packet_seeds (
    seed_id          VARCHAR(32) NOT NULL PRIMARY KEY,
    user_id          VARCHAR(64) NOT NULL,
    seed             BLOB NOT NULL,
    created_at       BIGINT NOT NULL,
    INDEX packet_seeds_by_age (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

