-- Over how many parts of a shared engine a sale is spread; 1 is not at all.
ALTER TABLE sales ADD COLUMN buckets BIGINT NOT NULL DEFAULT 1;

-- Who does what of which only one may be at work, until when by the database's own clock.
CREATE TABLE leases (
    name             TEXT    NOT NULL PRIMARY KEY,
    owner            TEXT    NOT NULL,
    until_ms         BIGINT  NOT NULL
) WITHOUT ROWID;

-- Every change of a sale as a whole, so that an engine that was lost can be made anew.
CREATE TABLE sale_changes (
    sale_id          BIGINT  NOT NULL,
    version          BIGINT  NOT NULL,
    kind             TEXT    NOT NULL, -- opened, restocked, closed, cleared
    units            BIGINT,
    request_id       TEXT,
    total            BIGINT  NOT NULL,
    closed_at        BIGINT,
    changed_at       BIGINT  NOT NULL,
    PRIMARY KEY (sale_id, version)
) WITHOUT ROWID;
