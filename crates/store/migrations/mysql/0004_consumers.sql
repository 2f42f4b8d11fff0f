-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Who reads the logs. Each has a position in every log, moved in the transaction that writes what it
-- made of the events; one without a row is at 0. A log is trimmed behind the last of those named here.
CREATE TABLE IF NOT EXISTS consumers (
    name             VARCHAR(128) NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS consumer_positions (
    consumer         VARCHAR(128) NOT NULL,
    log              VARCHAR(128) NOT NULL, -- embedded, redis/7, sql/7
    seq              BIGINT       NOT NULL,
    PRIMARY KEY (consumer, log)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

INSERT INTO consumers (name) VALUES ('records') ON DUPLICATE KEY UPDATE name = consumers.name;

-- It is gone if this was cut off behind its end.
CREATE TABLE IF NOT EXISTS positions (
    consumer         VARCHAR(128) NOT NULL PRIMARY KEY,
    seq              BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- Until now the records were the only one, and their name stood for an embedded engine's log.
INSERT INTO consumer_positions (consumer, log, seq)
SELECT 'records', CASE consumer WHEN 'records' THEN 'embedded' ELSE consumer END, seq
FROM positions
ON DUPLICATE KEY UPDATE log = consumer_positions.log;

DROP TABLE positions;
