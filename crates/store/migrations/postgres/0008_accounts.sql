-- Money, by double entry. An account is named by what it is for and whose it is: user:ann, packet:7; `outside`
-- is where money comes from and goes to, so that all accounts together are 0. Available is posted - held,
-- and only the outside may owe.
CREATE TABLE accounts (
    account          TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    created_at       BIGINT NOT NULL,
    posted           BIGINT NOT NULL, -- what its entries add up to, in cents
    held             BIGINT NOT NULL, -- of this, what open holds keep
    version          BIGINT NOT NULL, -- the seq of its last entry
    CONSTRAINT accounts_held CHECK (held >= 0),
    CONSTRAINT accounts_covered CHECK (account = 'outside' OR posted >= held),
    CONSTRAINT accounts_bound CHECK (account = 'outside' OR posted <= 1000000000000)
);

-- Everything that was ever asked of the accounts and took effect, by the key that makes it happen once.
CREATE TABLE transfers (
    transfer_key     TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    request_hash     TEXT COLLATE "C"   NOT NULL, -- what was asked: the same key with another hash is a mistake
    kind             TEXT COLLATE "C"   NOT NULL, -- transfer, hold, post, void, expire
    debit            TEXT COLLATE "C"   NOT NULL, -- the account it comes from
    credit           TEXT COLLATE "C"   NOT NULL, -- the account it goes to
    amount           BIGINT NOT NULL,
    pending_key      TEXT COLLATE "C", -- post, void, expire: the hold that is over by this; a hold is over once
    expires_at       BIGINT, -- hold: when it is over by itself; NULL is never
    created_at       BIGINT NOT NULL,
    CONSTRAINT transfers_amount CHECK (amount > 0)
);

CREATE UNIQUE INDEX transfers_by_pending ON transfers (pending_key);

-- The statement of each account, without gaps.
CREATE TABLE entries (
    account          TEXT COLLATE "C"   NOT NULL,
    seq              BIGINT NOT NULL, -- from 1
    transfer_key     TEXT COLLATE "C"   NOT NULL,
    other            TEXT COLLATE "C"   NOT NULL, -- the other account of the transfer
    amount           BIGINT NOT NULL, -- below 0: it left the account
    balance_after    BIGINT NOT NULL,
    at               BIGINT NOT NULL,
    PRIMARY KEY (account, seq),
    CONSTRAINT entries_covered CHECK (account = 'outside' OR balance_after >= 0)
);

-- The holds that are not over: for those who look for what is due, and for the audit. What decides is
-- transfers_by_pending.
CREATE TABLE open_holds (
    transfer_key     TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    debit            TEXT COLLATE "C"   NOT NULL,
    amount           BIGINT NOT NULL,
    expires_at       BIGINT
);

CREATE INDEX open_holds_by_end ON open_holds (expires_at, transfer_key);
