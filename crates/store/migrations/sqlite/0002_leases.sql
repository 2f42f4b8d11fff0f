-- Over how many parts of a shared engine a sale is spread; 1 is not at all.
ALTER TABLE sales ADD COLUMN buckets BIGINT NOT NULL DEFAULT 1;

-- Who does what of which only one may be at work, until when by the database's own clock.
CREATE TABLE leases (
    name             TEXT    NOT NULL PRIMARY KEY,
    owner            TEXT    NOT NULL,
    until_ms         BIGINT  NOT NULL
) WITHOUT ROWID;
