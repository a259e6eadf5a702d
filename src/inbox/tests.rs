use super::*;
use crate::domain::code::FailureCode;
use crate::store::{DeliveryFilter, DeliveryState};
use std::sync::atomic::{AtomicUsize, Ordering};

struct World {
    dir: tempfile::TempDir,
    store: Store,
    inbox: Inbox,
    woken: Arc<AtomicUsize>,
}

fn world(limits: InboxLimits) -> World {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(&dir.path().join("innkeeper.db"), "node").expect("opens");
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let inbox = Inbox::new(store.clone(), dir.path().to_owned(), limits, move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    World {
        dir,
        store,
        inbox,
        woken,
    }
}

fn few(max_pending: u64) -> InboxLimits {
    InboxLimits {
        max_pending,
        min_free_bytes: 0,
    }
}

fn arrival(id: &str) -> Arrival {
    Arrival {
        id: id.to_owned(),
        gh_event: "issues".to_owned(),
        source: Source::Webhook,
        form: false,
        body: Bytes::from_static(br#"{"action":"opened","repository":{"full_name":"acme/app"}}"#),
    }
}

async fn events(store: &Store) -> Vec<serde_json::Value> {
    store
        .read(|reader| reader.events_after(0, 1000))
        .await
        .expect("read")
        .iter()
        .map(|(_, line)| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

#[tokio::test]
async fn a_delivery_and_its_event_are_stored_together() {
    let world = world(few(10));
    let accepted = world.inbox.accept(arrival("d-1")).await.expect("accepted");
    assert!(matches!(accepted, Accepted::New(_)));
    assert_eq!(world.woken.load(Ordering::SeqCst), 1);
    let again = world.inbox.accept(arrival("d-1")).await.expect("answered");
    assert_eq!(again, Accepted::Duplicate);
    assert_eq!(world.woken.load(Ordering::SeqCst), 1, "nothing came");
    let events = events(&world.store).await;
    assert_eq!(events[0]["event"], "webhook.received");
    assert_eq!(events[0]["delivery"], "d-1");
    assert_eq!(events[0]["action"], "opened");
    assert_eq!(events[0]["repository"], "acme/app");
    assert_eq!(events[1]["event"], "delivery.duplicate");
    assert_eq!(events[1]["of"], "d-1");
}

#[tokio::test]
async fn a_full_inbox_refuses_until_something_is_finished() {
    let world = world(few(2));
    for id in ["a", "b"] {
        world.inbox.accept(arrival(id)).await.expect("accepted");
    }
    let refused = world.inbox.accept(arrival("c")).await;
    assert!(matches!(refused, Err(Refused::InboxFull { pending: 2 })));
    let known = world.inbox.accept(arrival("a")).await.expect("known");
    assert_eq!(known, Accepted::Duplicate, "what is stored needs no room");
    world
        .store
        .write(|tx| tx.delivery_done(1))
        .await
        .expect("finished");
    world.inbox.accept(arrival("c")).await.expect("room again");
    let refused = world.inbox.accept(arrival("d")).await;
    assert!(matches!(refused, Err(Refused::InboxFull { .. })));
}

#[tokio::test]
async fn a_disk_without_the_reserve_refuses_and_stores_nothing() {
    let world = world(InboxLimits {
        max_pending: 10,
        min_free_bytes: u64::MAX,
    });
    let refused = world.inbox.accept(arrival("a")).await;
    assert!(matches!(refused, Err(Refused::DiskFull)));
    assert!(events(&world.store).await.is_empty());
    world.inbox.set_limits(few(10));
    world.inbox.accept(arrival("a")).await.expect("accepted");
}

#[tokio::test]
async fn a_parked_delivery_that_comes_again_is_taken_up_afresh() {
    let world = world(few(10));
    for id in ["a", "b"] {
        world.inbox.accept(arrival(id)).await.expect("accepted");
    }
    world
        .store
        .write(|tx| tx.delivery_parked(1, FailureCode::Auth, "no"))
        .await
        .expect("parked");
    let again = world.inbox.accept(arrival("a")).await.expect("accepted");
    assert!(
        matches!(again, Accepted::New(seq) if seq > 2),
        "it stands behind what came before"
    );
    let row = world
        .store
        .read(|reader| reader.delivery("a"))
        .await
        .expect("read")
        .expect("is there");
    assert_eq!((row.state, row.attempt), (DeliveryState::Received, 0));
    assert!(row.outcome.is_none());
}

#[tokio::test]
async fn a_closed_store_refuses() {
    let world = world(few(10));
    world.store.close().await;
    let refused = world.inbox.accept(arrival("a")).await;
    assert!(matches!(refused, Err(Refused::Closed)));
    drop(world.dir);
}

#[tokio::test]
async fn only_what_was_finished_long_ago_is_forgotten() {
    let world = world(few(2000));
    for n in 0..5 {
        world
            .inbox
            .accept(arrival(&n.to_string()))
            .await
            .expect("accepted");
    }
    world
        .store
        .write(|tx| {
            tx.delivery_done(1)?;
            tx.delivery_done(2)?;
            tx.connection
                .execute("UPDATE deliveries SET finished_at = 1 WHERE seq = 1", [])?;
            Ok(())
        })
        .await
        .expect("finished");
    assert_eq!(world.inbox.prune(30).await.expect("pruned"), 1);
    let all = DeliveryFilter {
        limit: 100,
        ..DeliveryFilter::default()
    };
    let left = world
        .store
        .read(move |reader| reader.deliveries(&all))
        .await
        .expect("read");
    let ids: Vec<_> = left.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
}
