//! Work items: found by identity, claimed before anything is done for them.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::{Reader, StoreError, Tx};
use crate::clock;
use crate::domain::envelope::{Actor, Head};
use crate::domain::work_item::{Forge, HOST_OF_SHORT_REFERENCES, ItemKind, ItemName, ItemQuery};

/// What payloads said last about an item; events without these fields fall back
/// to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredFacts {
    /// Title.
    pub title: String,
    /// Address for people.
    pub url: Option<String>,
    /// Who opened it.
    pub author: Option<Actor>,
    /// The opener's association.
    pub association: Option<String>,
    /// Labels.
    pub labels: Vec<String>,
    /// Draft.
    pub draft: bool,
    /// Merged, once a payload said so.
    pub merged: Option<bool>,
    /// The newest head that a payload named.
    pub head: Option<Head>,
    /// Base branch.
    pub base: Option<String>,
    /// Every commit that an authentic payload named as the head, newest last.
    pub heads: Vec<String>,
    /// Those of them that the item's own sessions pushed, newest last.
    pub own_heads: Vec<String>,
}

/// A work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRow {
    /// Number in the store.
    pub id: i64,
    /// Reference as first seen.
    pub reference: String,
    /// Slug as first made.
    pub slug: String,
    /// Name as last seen.
    pub name: ItemName,
    /// Issue or pull request.
    pub kind: ItemKind,
    /// Open or closed.
    pub open: bool,
    /// Whether it was armed to start sessions.
    pub armed: bool,
    /// Whether later events are dropped.
    pub paused: bool,
    /// What payloads said last.
    pub facts: StoredFacts,
    /// When it was first seen.
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
}

/// The right to work on an item, until somebody else takes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The item.
    pub item: i64,
    /// Rises with each new owner; later writes check it.
    pub epoch: i64,
}

/// Which items are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemFilter {
    /// Only those with a live checkout or session.
    pub live: bool,
}

const COLUMNS: &str = "id, reference, slug, host, owner, repo, repo_id, number, kind, open, armed, \
                       paused, facts, created_at, updated_at";

fn row_of(row: &Row<'_>) -> rusqlite::Result<ItemRow> {
    let kind: String = row.get(8)?;
    let facts: String = row.get(12)?;
    let number: i64 = row.get(7)?;
    let repo_id: Option<i64> = row.get(6)?;
    Ok(ItemRow {
        id: row.get(0)?,
        reference: row.get(1)?,
        slug: row.get(2)?,
        name: ItemName {
            forge: Forge::Github,
            host: row.get(3)?,
            owner: row.get(4)?,
            repo: row.get(5)?,
            repo_id: repo_id.and_then(|id| u64::try_from(id).ok()),
            number: u64::try_from(number).unwrap_or(0),
        },
        kind: if kind == ItemKind::PullRequest.as_str() {
            ItemKind::PullRequest
        } else {
            ItemKind::Issue
        },
        open: row.get(9)?,
        armed: row.get(10)?,
        paused: row.get(11)?,
        facts: serde_json::from_str(&facts).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                12,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?,
        created_at: row.get(13)?,
        updated_at: row.get(14)?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Tx<'_> {
    /// Returns the item of this name, made if it is not there. An item that was
    /// first seen without a repository id gets it now and keeps its slug.
    pub fn ensure_item(&mut self, name: &ItemName, kind: ItemKind) -> Result<ItemRow, StoreError> {
        if let Some(mut found) = self.find_item(name)? {
            let learned = found.name.repo_id.is_none() && name.repo_id.is_some();
            let renamed = found.name.owner != name.owner || found.name.repo != name.repo;
            if learned || renamed {
                if learned {
                    found.name.repo_id = name.repo_id;
                }
                name.owner.clone_into(&mut found.name.owner);
                name.repo.clone_into(&mut found.name.repo);
                self.connection
                    .prepare_cached(
                        "UPDATE items SET key = ?2, name_key = ?3, owner = ?4, repo = ?5,
                         repo_id = ?6 WHERE id = ?1",
                    )?
                    .execute(params![
                        found.id,
                        found.name.key(),
                        found.name.key_by_name(),
                        found.name.owner,
                        found.name.repo,
                        found.name.repo_id.map(signed)
                    ])?;
            }
            return Ok(found);
        }
        let now = clock::now_ms();
        self.connection
            .prepare_cached(
                "INSERT INTO items (key, name_key, reference, slug, host, owner, repo, repo_id,
                 number, kind, open, armed, paused, facts, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, 0, 0, '{}', ?11, ?11)",
            )?
            .execute(params![
                name.key(),
                name.key_by_name(),
                name.reference(),
                name.slug(),
                name.host,
                name.owner,
                name.repo,
                name.repo_id.map(signed),
                signed(name.number),
                kind.as_str(),
                now
            ])?;
        self.item(self.connection.last_insert_rowid())
    }

    /// Returns the item of this name, if it is known.
    pub fn find_item(&self, name: &ItemName) -> Result<Option<ItemRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .find_item(name)
    }

    /// Returns the item of this slug, if it is known.
    pub fn item_of_slug(&self, slug: &str) -> Result<Option<ItemRow>, StoreError> {
        let found = Reader {
            connection: self.connection,
        }
        .items_named(&ItemQuery::Slug(slug.to_owned()))?;
        Ok(found.into_iter().next())
    }

    /// Returns the item of this number.
    pub fn item(&self, id: i64) -> Result<ItemRow, StoreError> {
        Reader {
            connection: self.connection,
        }
        .item(id)
    }

    /// Stores what changed about an item. Its identity is left as it is.
    pub fn update_item(&mut self, claim: Claim, item: &ItemRow) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached(
                "UPDATE items SET kind = ?2, open = ?3, armed = ?4, paused = ?5, facts = ?6,
                 updated_at = ?7 WHERE id = ?1",
            )?
            .execute(params![
                item.id,
                item.kind.as_str(),
                item.open,
                item.armed,
                item.paused,
                serde_json::to_string(&item.facts)?,
                clock::now_ms()
            ])?;
        Ok(())
    }

    /// Claims an item for `owner`, or renews the claim. A claim of somebody else
    /// is respected while its lease runs, unless `alone` says that no other
    /// owner can be alive.
    pub fn claim_item(
        &mut self,
        item: i64,
        owner: &str,
        lease_ms: i64,
        alone: bool,
    ) -> Result<Claim, StoreError> {
        let now = clock::now_ms();
        let (by, until, epoch): (Option<String>, i64, i64) = self
            .connection
            .prepare_cached("SELECT claimed_by, lease_until, epoch FROM items WHERE id = ?1")?
            .query_row(params![item], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?
            .ok_or_else(|| StoreError::Absent {
                what: format!("work item {item}"),
            })?;
        let epoch = match by {
            Some(by) if by == owner => epoch,
            Some(_) if until > now && !alone => return Err(StoreError::Stale { item, epoch }),
            Some(_) | None => epoch + 1,
        };
        self.connection
            .prepare_cached(
                "UPDATE items SET claimed_by = ?2, lease_until = ?3, epoch = ?4 WHERE id = ?1",
            )?
            .execute(params![item, owner, now + lease_ms, epoch])?;
        Ok(Claim { item, epoch })
    }

    /// Checks that a claim still holds.
    pub fn require_claim(&self, claim: Claim) -> Result<(), StoreError> {
        let epoch: Option<i64> = self
            .connection
            .prepare_cached("SELECT epoch FROM items WHERE id = ?1")?
            .query_row(params![claim.item], |row| row.get(0))
            .optional()?;
        if epoch == Some(claim.epoch) {
            Ok(())
        } else {
            Err(StoreError::Stale {
                item: claim.item,
                epoch: claim.epoch,
            })
        }
    }
}

impl Reader<'_> {
    /// Returns the item of this number.
    pub fn item(&self, id: i64) -> Result<ItemRow, StoreError> {
        self.connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM items WHERE id = ?1"))?
            .query_row(params![id], row_of)
            .optional()?
            .ok_or_else(|| StoreError::Absent {
                what: format!("work item {id}"),
            })
    }

    /// Returns the item of this name: by repository id where both know one, else
    /// by name.
    pub fn find_item(&self, name: &ItemName) -> Result<Option<ItemRow>, StoreError> {
        let by_key = self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM items WHERE key = ?1"))?
            .query_row(params![name.key()], row_of)
            .optional()?;
        if by_key.is_some() {
            return Ok(by_key);
        }
        // Newest first: a new repository under an old name is the one meant.
        Ok(self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM items
                 WHERE name_key = ?1 AND (?2 IS NULL OR repo_id IS NULL) ORDER BY id DESC LIMIT 1"
            ))?
            .query_row(
                params![name.key_by_name(), name.repo_id.map(signed)],
                row_of,
            )
            .optional()?)
    }

    /// Returns the items that a person may mean.
    pub fn items_named(&self, query: &ItemQuery) -> Result<Vec<ItemRow>, StoreError> {
        let (condition, values) = match query {
            ItemQuery::Slug(slug) => ("slug = ?1", vec![Value::from(slug.clone())]),
            ItemQuery::Name {
                host,
                owner,
                repo,
                number,
            } => (
                // The reference is the name as first seen; it stays one after a rename.
                "number = ?1 AND (lower(owner) = ?2 AND lower(repo) = ?3
                                  AND (?4 IS NULL OR host = ?4)
                                  OR lower(reference) = ?5)",
                vec![
                    Value::from(signed(*number)),
                    Value::from(owner.to_lowercase()),
                    Value::from(repo.to_lowercase()),
                    host.clone().map_or(Value::Null, Value::from),
                    Value::from(
                        ItemName {
                            forge: Forge::Github,
                            host: host
                                .clone()
                                .unwrap_or_else(|| HOST_OF_SHORT_REFERENCES.to_owned()),
                            owner: owner.clone(),
                            repo: repo.clone(),
                            repo_id: None,
                            number: *number,
                        }
                        .reference()
                        .to_lowercase(),
                    ),
                ],
            ),
        };
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM items WHERE {condition} ORDER BY id DESC"
        ))?;
        let rows = statement.query_map(params_from_iter(values), row_of)?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns items, oldest first.
    pub fn items(&self, filter: ItemFilter) -> Result<Vec<ItemRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM items WHERE ?1 = 0
             OR id IN (SELECT item FROM checkouts
                       WHERE state IN ('preparing', 'ready', 'missing', 'removing'))
             OR id IN (SELECT item FROM sessions WHERE state IN ('starting', 'running'))
             ORDER BY id"
        ))?;
        let rows = statement.query_map(params![filter.live], row_of)?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }
}
