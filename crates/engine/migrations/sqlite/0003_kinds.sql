-- What a pool is for: a sale, as all pools were until now, or a packet. Each kind is listed by itself.

ALTER TABLE engine_pools ADD COLUMN kind TEXT NOT NULL DEFAULT 'sale';

DROP INDEX engine_pools_newest;

CREATE INDEX engine_pools_newest ON engine_pools (kind, opened_at, id);
