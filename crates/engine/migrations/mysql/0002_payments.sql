-- A payment id counts once in its pool. That it was used in another pool is found in the records.
--
-- One statement, so that it can be run again if it was cut off.

ALTER TABLE engine_payments DROP PRIMARY KEY, ADD PRIMARY KEY (pool_id, payment_id);
