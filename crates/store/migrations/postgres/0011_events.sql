-- What happened, in its public form, for whoever reads it page by page: kept for a while. Ids are given
-- in the order of the commits, because each writer holds the row of the feed until it has committed.
CREATE TABLE events (
    id               BIGINT           NOT NULL PRIMARY KEY,
    kind             TEXT COLLATE "C" NOT NULL, -- claim_granted
    pool_id          BIGINT           NOT NULL,
    number           BIGINT           NOT NULL, -- of the claim; 0 is none
    stored_at        BIGINT           NOT NULL,
    body             TEXT             NOT NULL
);

CREATE TABLE event_feeds (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch            BIGINT           NOT NULL, -- another one: something may be missing between the two
    last_id          BIGINT           NOT NULL,
    pruned_id        BIGINT           NOT NULL -- what is not above it is gone, or of another epoch
);

INSERT INTO event_feeds (name, epoch, last_id, pruned_id) VALUES ('events', 0, 0, 0);
