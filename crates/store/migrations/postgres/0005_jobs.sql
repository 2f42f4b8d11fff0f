-- Work to be done later, by whoever takes it first: at least once, and once for each kind and key.
-- `at` is, of a job that waits, when it is due; of one that somebody has, when their lease ends; of one
-- that is over, since when.
CREATE TABLE jobs (
    kind             TEXT COLLATE "C" NOT NULL, -- with its version: open_packet_v1
    job_key          TEXT COLLATE "C" NOT NULL,
    payload          TEXT             NOT NULL,
    state            TEXT COLLATE "C" NOT NULL, -- waiting, done, dead, discarded
    at               BIGINT           NOT NULL,
    owner            TEXT COLLATE "C" NOT NULL, -- who has it; '' is nobody
    attempts         BIGINT           NOT NULL,
    error            TEXT, -- why the last attempt failed
    created_at       BIGINT           NOT NULL,
    PRIMARY KEY (kind, job_key)
);

CREATE INDEX jobs_by_state ON jobs (state, at);
