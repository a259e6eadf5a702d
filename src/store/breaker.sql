-- The bulk breaker: one row, JSON. Without a row nothing has happened yet.

CREATE TABLE breaker (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL
);
