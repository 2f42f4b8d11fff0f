-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Work to be done later, by whoever takes it first: at least once, and once for each kind and key.
-- `at` is, of a job that waits, when it is due; of one that somebody has, when their lease ends; of one
-- that is over, since when.
CREATE TABLE IF NOT EXISTS jobs (
    kind             VARCHAR(128) NOT NULL, -- with its version: open_packet_v1
    job_key          VARCHAR(128) NOT NULL,
    payload          MEDIUMTEXT   NOT NULL,
    state            VARCHAR(16)  NOT NULL, -- waiting, done, dead, discarded
    at               BIGINT       NOT NULL,
    owner            VARCHAR(128) NOT NULL, -- who has it; '' is nobody
    attempts         BIGINT       NOT NULL,
    error            MEDIUMTEXT, -- why the last attempt failed
    created_at       BIGINT       NOT NULL,
    PRIMARY KEY (kind, job_key),
    INDEX jobs_by_state (state, at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
