-- What each node says of its last seconds, for the plots of the console. One row for each node, written
-- again every second; nodes that share an engine read each other's.
CREATE TABLE node_samples (
    node     BIGINT NOT NULL PRIMARY KEY,
    taken_at BIGINT NOT NULL, -- by the database's clock
    body     TEXT   NOT NULL
) WITHOUT ROWID;
