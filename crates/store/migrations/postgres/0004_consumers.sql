-- Who reads the logs. Each has a position in every log, moved in the transaction that writes what it
-- made of the events; one without a row is at 0. A log is trimmed behind the last of those named here.
CREATE TABLE consumers (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

CREATE TABLE consumer_positions (
    consumer         TEXT COLLATE "C" NOT NULL,
    log              TEXT COLLATE "C" NOT NULL, -- embedded, redis/7, sql/7
    seq              BIGINT           NOT NULL,
    PRIMARY KEY (consumer, log)
);

INSERT INTO consumers (name) VALUES ('records');

-- Until now the records were the only one, and their name stood for an embedded engine's log.
INSERT INTO consumer_positions (consumer, log, seq)
SELECT 'records', CASE consumer WHEN 'records' THEN 'embedded' ELSE consumer END, seq
FROM positions;

DROP TABLE positions;
