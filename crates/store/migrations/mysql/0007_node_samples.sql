-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- What each node says of its last seconds, for the plots of the console. One row for each node, written
-- again every second; nodes that share an engine read each other's.
CREATE TABLE IF NOT EXISTS node_samples (
    node     BIGINT     NOT NULL PRIMARY KEY,
    taken_at BIGINT     NOT NULL, -- by the database's clock
    body     MEDIUMTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
