-- Who is signed in to the pages. The cookie is checked without this; it is renewed only while the row
-- is good.
CREATE TABLE sessions (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id    TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL, -- buyer, viewer, admin
    identity   TEXT COLLATE "C", -- the real person behind the account, if the shop knows
    how        TEXT COLLATE "C" NOT NULL, -- token, link, sandbox
    created_at BIGINT           NOT NULL,
    expires_at BIGINT           NOT NULL,
    ended_at   BIGINT -- signed out, or ended by an admin
);

CREATE INDEX sessions_by_end ON sessions (expires_at);

-- What buyers read about a sale. No rule: it can be changed while the sale runs.
CREATE TABLE sale_pages (
    sale_id     BIGINT NOT NULL PRIMARY KEY,
    description TEXT   NOT NULL,
    changed_at  BIGINT NOT NULL
);

CREATE TABLE sale_images (
    sale_id    BIGINT           NOT NULL PRIMARY KEY,
    media_type TEXT COLLATE "C" NOT NULL, -- image/png, image/jpeg, image/webp
    content    BYTEA            NOT NULL,
    changed_at BIGINT           NOT NULL
);
