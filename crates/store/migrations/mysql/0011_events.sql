-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- What happened, in its public form, for whoever reads it page by page: kept for a while. Ids are given
-- in the order of the commits, because each writer holds the row of the feed until it has committed.
CREATE TABLE IF NOT EXISTS events (
    id               BIGINT       NOT NULL PRIMARY KEY,
    kind             VARCHAR(32)  NOT NULL, -- claim_granted
    pool_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL, -- of the claim; 0 is none
    stored_at        BIGINT       NOT NULL,
    body             MEDIUMTEXT   NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS event_feeds (
    name             VARCHAR(128) NOT NULL PRIMARY KEY,
    epoch            BIGINT       NOT NULL, -- another one: something may be missing between the two
    last_id          BIGINT       NOT NULL,
    pruned_id        BIGINT       NOT NULL -- what is not above it is gone, or of another epoch
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

INSERT INTO event_feeds (name, epoch, last_id, pruned_id) VALUES ('events', 0, 0, 0)
ON DUPLICATE KEY UPDATE name = event_feeds.name;
