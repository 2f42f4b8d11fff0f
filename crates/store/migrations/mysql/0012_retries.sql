-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Events that a consumer could not apply: tried again later, and in the end dead letters. What waits is
-- due at `at`; everything else is what it is since `at`.
CREATE TABLE IF NOT EXISTS retries (
    consumer         VARCHAR(128) NOT NULL,
    event_id         VARCHAR(128) NOT NULL,
    kind             VARCHAR(32)  NOT NULL, -- claim_granted
    pool_id          BIGINT       NOT NULL,
    number           BIGINT       NOT NULL, -- of the claim; 0 is none
    version          BIGINT       NOT NULL, -- of what the event is about
    event            MEDIUMBLOB   NOT NULL, -- the whole event, as in the journal
    parked_at        BIGINT       NOT NULL,
    state            VARCHAR(16)  NOT NULL, -- waiting, dead, discarding, discarded, resolved
    at               BIGINT       NOT NULL,
    attempts         BIGINT       NOT NULL, -- all there ever were
    round            BIGINT       NOT NULL, -- of these, since a person last asked for more
    error            MEDIUMTEXT   NOT NULL, -- why the last one failed
    outcome          VARCHAR(16),           -- of a discarded one: released, revoked, nothing
    PRIMARY KEY (consumer, event_id),
    INDEX retries_by_state (state, at),
    INDEX retries_by_claim (pool_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
