-- Events that a consumer could not apply: tried again later, and in the end dead letters. What waits is
-- due at `at`; everything else is what it is since `at`.
CREATE TABLE retries (
    consumer         TEXT   NOT NULL,
    event_id         TEXT   NOT NULL,
    kind             TEXT   NOT NULL, -- claim_granted
    pool_id          BIGINT NOT NULL,
    number           BIGINT NOT NULL, -- of the claim; 0 is none
    version          BIGINT NOT NULL, -- of what the event is about
    event            BLOB   NOT NULL, -- the whole event, as in the journal
    parked_at        BIGINT NOT NULL,
    state            TEXT   NOT NULL, -- waiting, dead, discarding, discarded, resolved
    at               BIGINT NOT NULL,
    attempts         BIGINT NOT NULL, -- all there ever were
    round            BIGINT NOT NULL, -- of these, since a person last asked for more
    error            TEXT   NOT NULL, -- why the last one failed
    outcome          TEXT,            -- of a discarded one: released, revoked, nothing
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;

CREATE INDEX retries_by_state ON retries (state, at);
CREATE INDEX retries_by_claim ON retries (pool_id, number);
