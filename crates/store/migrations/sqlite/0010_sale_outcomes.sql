-- How often which answer was given to those who claimed from a sale, for its report. Counted by every
-- process and added once a second. The parts are seconds while a sale is new, and longer later.
CREATE TABLE sale_outcomes (
    sale_id          BIGINT NOT NULL,
    at               BIGINT NOT NULL, -- when the part begins
    outcome          TEXT   NOT NULL, -- granted, replayed, failed, or the code of a refusal
    covers_ms        BIGINT NOT NULL, -- how long the part is
    times            BIGINT NOT NULL,
    PRIMARY KEY (sale_id, at, outcome)
) WITHOUT ROWID;

-- The last thing that each process has added, so that nothing is added twice.
CREATE TABLE outcome_writers (
    writer           TEXT   NOT NULL PRIMARY KEY,
    seq              BIGINT NOT NULL,
    at               BIGINT NOT NULL -- by the database's clock
) WITHOUT ROWID;
