//! What the store promises, tried on a real file.

use std::sync::Arc;

use super::{Accepted, NewDelivery, Store, StoreError};
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::work_item::{Forge, ItemKind, ItemName};

fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("innkeeper.db"), "node").expect("the store opens")
}

fn delivery(id: &str) -> NewDelivery {
    NewDelivery {
        id: id.to_owned(),
        source: "webhook",
        gh_event: "ping".to_owned(),
        form: false,
        body: NewDelivery::compress(b"{}").expect("compresses"),
    }
}

fn stopped(reason: &str) -> Entry {
    Entry::new(LogEvent::DaemonStopped {
        reason: reason.to_owned(),
    })
}

fn name(repo_id: Option<u64>) -> ItemName {
    ItemName {
        forge: Forge::Github,
        host: "github.com".to_owned(),
        owner: "Acme".to_owned(),
        repo: "App".to_owned(),
        repo_id,
        number: 15,
    }
}

#[tokio::test]
async fn a_delivery_is_accepted_once_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let mut answers = Vec::new();
    for _ in 0..20 {
        let store = store.clone();
        answers.push(tokio::spawn(async move {
            store
                .write(|tx| tx.accept_delivery(&delivery("d-1")))
                .await
                .expect("accepted")
        }));
    }
    let mut new = 0;
    for answer in answers {
        new += usize::from(matches!(answer.await.expect("no panic"), Accepted::New(_)));
    }
    assert_eq!(new, 1);
    store.close().await;
    let store = open(&dir);
    let again = store
        .write(|tx| tx.accept_delivery(&delivery("d-1")))
        .await
        .expect("accepted");
    assert_eq!(again, Accepted::Duplicate);
    let pending = store
        .read(|reader| reader.pending_after(0, 10))
        .await
        .expect("read");
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].body, b"{}");
}

#[tokio::test]
async fn the_sequence_has_no_gap_whatever_is_rolled_back_or_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    store.tell(stopped("1")).await.expect("stored");
    let refused: Result<(), _> = store
        .write(|tx| {
            tx.append(&stopped("never"))?;
            Err(StoreError::Closed)
        })
        .await;
    assert!(refused.is_err());
    store.tell(stopped("2")).await.expect("stored");
    store
        .write(|tx| tx.forget_events_through(2))
        .await
        .expect("forgotten");
    store.close().await;
    let store = open(&dir);
    store.tell(stopped("3")).await.expect("stored");
    let events = store
        .read(|reader| reader.events_after(0, 10))
        .await
        .expect("read");
    assert_eq!(events.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [3]);
    assert_eq!(*store.committed().borrow(), 3);
}

#[tokio::test]
async fn a_piece_that_fails_takes_nothing_else_of_its_group_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let gate = Arc::new(std::sync::Barrier::new(2));
    let held = Arc::clone(&gate);
    let first = store.clone();
    // The writer is held so that what follows is committed as one group.
    let first = tokio::spawn(async move {
        first
            .write(move |tx| {
                held.wait();
                tx.accept_delivery(&delivery("a"))
            })
            .await
    });
    let bad = store.clone();
    let bad = tokio::spawn(async move {
        bad.write(|tx| {
            tx.accept_delivery(&delivery("b"))?;
            Err::<(), _>(StoreError::Closed)
        })
        .await
    });
    let good = store.clone();
    let good =
        tokio::spawn(async move { good.write(|tx| tx.accept_delivery(&delivery("c"))).await });
    tokio::task::spawn_blocking(move || gate.wait())
        .await
        .expect("no panic");
    first.await.expect("no panic").expect("stored");
    assert!(bad.await.expect("no panic").is_err());
    good.await.expect("no panic").expect("stored");
    let pending = store
        .read(|reader| reader.pending_after(0, 10))
        .await
        .expect("read");
    assert_eq!(
        pending
            .iter()
            .map(|p| p.row.id.as_str())
            .collect::<Vec<_>>(),
        ["a", "c"]
    );
}

#[tokio::test]
async fn an_item_first_seen_without_an_id_is_the_same_item_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let first = store
        .write(|tx| tx.ensure_item(&name(None), ItemKind::PullRequest))
        .await
        .expect("made");
    let later = store
        .write(|tx| tx.ensure_item(&name(Some(7)), ItemKind::PullRequest))
        .await
        .expect("found");
    assert_eq!((first.id, &first.slug), (later.id, &later.slug));
    let other = store
        .write(|tx| tx.ensure_item(&name(Some(8)), ItemKind::PullRequest))
        .await
        .expect("made");
    assert_ne!(first.id, other.id, "another repository under the same name");
    assert_ne!(first.slug, other.slug);
}

#[tokio::test]
async fn a_write_under_a_claim_that_was_taken_over_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let item = store
        .write(|tx| tx.ensure_item(&name(None), ItemKind::Issue))
        .await
        .expect("made");
    let id = item.id;
    let old = store
        .write(move |tx| tx.claim_item(id, "one", 60_000, false))
        .await
        .expect("mine");
    let refused = store
        .write(move |tx| tx.claim_item(id, "two", 60_000, false))
        .await;
    assert!(
        matches!(refused, Err(StoreError::Stale { .. })),
        "the lease still runs"
    );
    let new = store
        .write(move |tx| tx.claim_item(id, "two", 60_000, true))
        .await
        .expect("taken");
    assert_eq!(new.epoch, old.epoch + 1);
    let mut changed = item.clone();
    changed.armed = true;
    let stale = store.write(move |tx| tx.update_item(old, &changed)).await;
    assert!(matches!(stale, Err(StoreError::Stale { .. })));
    assert!(
        !store
            .read(move |reader| reader.item(id))
            .await
            .expect("read")
            .armed
    );
}

#[tokio::test]
async fn the_text_of_one_delivery_is_handed_over_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let (first, second, waiting) = store
        .write(|tx| {
            let item = tx.ensure_item(&name(None), ItemKind::Issue)?;
            let claim = tx.claim_item(item.id, "me", 60_000, true)?;
            tx.plan_session(claim, "s", None, "p", "/tmp")?;
            let first = tx.add_input(claim, "s", Some("d"), "issues", None, "text")?;
            let second = tx.add_input(claim, "s", Some("d"), "issues", None, "text")?;
            let run = tx.begin_run(claim, "s", None, "/tmp")?;
            assert_eq!(run, 1);
            let third = tx.add_input(claim, "s", Some("d"), "issues", None, "text")?;
            Ok((first, second || third, tx.inputs("s", None)?))
        })
        .await
        .expect("written");
    assert!(first && !second);
    assert!(waiting.is_empty());
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("innkeeper.db");
    Store::open(&path, "node").expect("opens").close().await;
    rusqlite::Connection::open(&path)
        .expect("opens")
        .pragma_update(None, "user_version", 999)
        .expect("set");
    assert!(matches!(
        Store::open(&path, "node"),
        Err(StoreError::TooNew { found: 999, .. })
    ));
}
