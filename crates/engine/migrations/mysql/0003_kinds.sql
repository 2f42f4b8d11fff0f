-- What a pool is for: a sale, as all pools were until now, or a packet. Each kind is listed by itself.
--
-- One statement, so that it can be run again if it was cut off.

ALTER TABLE engine_pools
    ADD COLUMN kind VARCHAR(16) NOT NULL DEFAULT 'sale',
    DROP KEY engine_pools_newest,
    ADD KEY engine_pools_newest (kind, opened_at, id);
