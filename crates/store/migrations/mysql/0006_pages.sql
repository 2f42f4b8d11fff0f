-- A CREATE commits by itself, so this is written to be run again if it was cut off.

-- Who is signed in to the pages. The cookie is checked without this; it is renewed only while the row
-- is good.
CREATE TABLE IF NOT EXISTS sessions (
    id         VARCHAR(64)  NOT NULL PRIMARY KEY,
    user_id    VARCHAR(64)  NOT NULL,
    role       VARCHAR(16)  NOT NULL, -- buyer, viewer, admin
    identity   VARCHAR(128), -- the real person behind the account, if the shop knows
    how        VARCHAR(16)  NOT NULL, -- token, link, sandbox
    created_at BIGINT       NOT NULL,
    expires_at BIGINT       NOT NULL,
    ended_at   BIGINT, -- signed out, or ended by an admin
    INDEX sessions_by_end (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

-- What buyers read about a sale. No rule: it can be changed while the sale runs.
CREATE TABLE IF NOT EXISTS sale_pages (
    sale_id     BIGINT     NOT NULL PRIMARY KEY,
    description MEDIUMTEXT NOT NULL,
    changed_at  BIGINT     NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};

CREATE TABLE IF NOT EXISTS sale_images (
    sale_id    BIGINT      NOT NULL PRIMARY KEY,
    media_type VARCHAR(64) NOT NULL, -- image/png, image/jpeg, image/webp
    content    MEDIUMBLOB  NOT NULL,
    changed_at BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {exact};
