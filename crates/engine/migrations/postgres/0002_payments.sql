-- A payment id counts once in its pool. That it was used in another pool is found in the records.

ALTER TABLE engine_payments
    DROP CONSTRAINT engine_payments_pkey,
    ADD CONSTRAINT engine_payments_pkey PRIMARY KEY (pool_id, payment_id);
