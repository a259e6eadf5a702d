-- Times are milliseconds since 1970, UTC. JSON columns hold values of the crate's own types.

CREATE TABLE deliveries (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT, -- order of arrival
    id          TEXT NOT NULL UNIQUE,              -- X-GitHub-Delivery
    source      TEXT NOT NULL,
    gh_event    TEXT NOT NULL,
    form        INTEGER NOT NULL,                  -- 1: the body is a form with payload=
    body        BLOB NOT NULL,                     -- zstd
    received_at INTEGER NOT NULL,
    state       TEXT NOT NULL,                     -- received | running | done | dropped | parked
    item        INTEGER REFERENCES items (id),
    action      TEXT,
    repository  TEXT,
    attempt     INTEGER NOT NULL DEFAULT 0,
    crashes     INTEGER NOT NULL DEFAULT 0,        -- crashes in a row with it as the only one running
    not_before  INTEGER NOT NULL DEFAULT 0,
    outcome     TEXT,                              -- reason of dropped, code of parked or of the last attempt
    error       TEXT,
    finished_at INTEGER
);
CREATE INDEX deliveries_pending ON deliveries (seq) WHERE state IN ('received', 'running');
CREATE INDEX deliveries_item ON deliveries (item, seq) WHERE item IS NOT NULL;
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE items (
    id          INTEGER PRIMARY KEY,
    key         TEXT NOT NULL UNIQUE,              -- forge, host, repository id (name while unknown), number
    name_key    TEXT NOT NULL,                     -- the same by name, lower case
    reference   TEXT NOT NULL,                     -- as first seen
    slug        TEXT NOT NULL UNIQUE,
    host        TEXT NOT NULL,
    owner       TEXT NOT NULL,
    repo        TEXT NOT NULL,
    repo_id     INTEGER,
    number      INTEGER NOT NULL,
    kind        TEXT NOT NULL,                     -- issue | pull_request
    open        INTEGER NOT NULL,
    armed       INTEGER NOT NULL,
    paused      INTEGER NOT NULL,
    facts       TEXT NOT NULL,                     -- JSON: what payloads said last
    claimed_by  TEXT,                              -- owner: unique for each start of a daemon
    lease_until INTEGER NOT NULL DEFAULT 0,
    epoch       INTEGER NOT NULL DEFAULT 0,        -- rises with each new owner
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE INDEX items_name ON items (name_key);

CREATE TABLE checkouts (
    id          INTEGER PRIMARY KEY,
    item        INTEGER NOT NULL REFERENCES items (id),
    repository  TEXT NOT NULL,                     -- host/owner/repo, as in paths
    state       TEXT NOT NULL,
    root        TEXT NOT NULL,
    strategy    TEXT NOT NULL,
    record      TEXT,                              -- JSON: identity, once it is ready
    kept        TEXT,                              -- JSON: why it was kept the last time
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE UNIQUE INDEX checkouts_live ON checkouts (item, repository)
    WHERE state IN ('preparing', 'ready', 'missing', 'removing');
CREATE INDEX checkouts_state ON checkouts (state);

CREATE TABLE sessions (
    id          TEXT PRIMARY KEY,                  -- UUID version 7
    item        INTEGER NOT NULL REFERENCES items (id),
    checkout    INTEGER REFERENCES checkouts (id),
    profile     TEXT NOT NULL,
    directory   TEXT NOT NULL,
    state       TEXT NOT NULL,                     -- queued | starting | running | exited | lost | closed
    run         INTEGER NOT NULL,                  -- counts the starts of its command
    status      TEXT,                              -- JSON: how the last run ended
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE INDEX sessions_item ON sessions (item, id);
CREATE INDEX sessions_live ON sessions (state) WHERE state IN ('starting', 'running');

CREATE TABLE inputs (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- order of handing over
    session     TEXT NOT NULL REFERENCES sessions (id),
    delivery    TEXT,                              -- none: asked for by a person
    run         INTEGER,                           -- the run that carries it; none: waits
    event       TEXT NOT NULL,
    action      TEXT,
    text        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (session, delivery)
);
CREATE INDEX inputs_waiting ON inputs (session, id) WHERE run IS NULL;
CREATE INDEX inputs_delivery ON inputs (delivery) WHERE delivery IS NOT NULL;

CREATE TABLE events (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    line TEXT NOT NULL                             -- a whole line of the event log
);
