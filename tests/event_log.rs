//! The event log against a real store and real files: cut anywhere, killed at
//! any step of a rotation, moved away, and read meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::Glob;
use innkeeper::domain::log_event::{CATALOGUE, Entry, Line, LogEvent};
use innkeeper::event_log::{Continuity, EventFilter, EventLog, EventLogSettings, EventReader};
use innkeeper::store::Store;
use tempfile::TempDir;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(20);

struct World {
    dir: TempDir,
    store: Store,
    settings: EventLogSettings,
}

impl World {
    /// The store forgets nothing by itself before a log is closed.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("innkeeper.db"), "node").expect("opens");
        let settings = EventLogSettings {
            settle: Duration::from_hours(1),
            ..EventLogSettings::at(dir.path().join("log/events.jsonl"))
        };
        Self {
            dir,
            store,
            settings,
        }
    }

    fn path(&self) -> &Path {
        &self.settings.path
    }

    fn finished(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}.{number}", self.path().display()))
    }

    async fn open(&self) -> EventLog {
        EventLog::open(self.store.clone(), self.settings.clone())
            .await
            .expect("the log opens")
    }

    async fn tell(&self, count: u64) {
        for n in 0..count {
            let reason = format!("number {n}");
            let entry = Entry::new(LogEvent::DaemonStopped { reason });
            self.store.tell(entry).await.expect("stored");
        }
    }

    /// Opens the log, lets it copy everything, and drops it as a kill would.
    async fn copy_and_kill(&self) -> Continuity {
        let log = self.open().await;
        let newest = *self.store.committed().borrow();
        let mut written = log.written();
        tokio::time::timeout(DEADLINE, written.wait_for(|seq| *seq >= newest))
            .await
            .expect("everything is copied")
            .expect("the log lives");
        log.continuity()
    }

    async fn waiting(&self) -> usize {
        self.store
            .read(|reader| reader.events_after(0, 100_000))
            .await
            .expect("read")
            .len()
    }
}

fn read_all(path: &Path) -> Vec<u64> {
    let mut reader = EventReader::open(path, EventFilter::default()).expect("opens");
    let mut seqs = Vec::new();
    while let Some(line) = reader.next_line().expect("reads") {
        seqs.push(serde_json::from_str::<Line>(&line).expect("a line").seq);
    }
    seqs
}

fn numbers(first: u64, last: u64) -> Vec<u64> {
    (first..=last).collect()
}

#[tokio::test]
async fn every_event_is_in_the_file_once_and_the_store_forgets_it_when_the_log_is_closed() {
    let world = World::new();
    let log = world.open().await;
    world.tell(100).await;
    log.close().await;
    assert_eq!(read_all(world.path()), numbers(1, 100));
    assert_eq!(world.waiting().await, 0);
    let mode = fs::metadata(world.path()).expect("is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    world.tell(3).await;
    let log = world.open().await;
    assert_eq!(log.continuity(), Continuity::Whole);
    log.close().await;
    assert_eq!(read_all(world.path()), numbers(1, 103));
    world.store.close().await;
}

#[tokio::test]
async fn what_was_copied_is_flushed_and_forgotten_when_nothing_happens() {
    let mut world = World::new();
    world.settings.settle = Duration::from_millis(1);
    let _log = world.open().await;
    world.tell(20).await;
    let forgotten = async {
        while world.waiting().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, forgotten)
        .await
        .expect("the store forgets");
    assert_eq!(read_all(world.path()), numbers(1, 20));
}

#[tokio::test]
async fn a_log_cut_at_any_byte_is_whole_again_after_the_next_start() {
    let world = World::new();
    world.tell(6).await;
    world.copy_and_kill().await;
    let whole = fs::read(world.path()).expect("read");
    for cut in 0..whole.len() {
        fs::write(world.path(), &whole[..cut]).expect("cut");
        assert_eq!(world.copy_and_kill().await, Continuity::Whole, "byte {cut}");
        let mended = fs::read(world.path()).expect("read");
        assert!(mended == whole, "cut at byte {cut}");
    }
}

#[tokio::test]
async fn what_a_power_cut_left_in_the_middle_is_copied_again() {
    let world = World::new();
    world.tell(6).await;
    world.copy_and_kill().await;
    let whole = fs::read(world.path()).expect("read");
    for hole in (0..whole.len() - 10).step_by(7) {
        let mut holed = whole.clone();
        holed[hole..hole + 10].fill(0);
        fs::write(world.path(), &holed).expect("holed");
        world.copy_and_kill().await;
        let mended = fs::read(world.path()).expect("read");
        assert!(mended == whole, "zeros at byte {hole}");
    }
}

#[tokio::test]
async fn a_log_that_was_flushed_and_then_cut_keeps_whole_lines_and_tells_the_gap() {
    let world = World::new();
    world.tell(4).await;
    world.open().await.close().await;
    assert_eq!(world.waiting().await, 0);
    let whole = fs::read(world.path()).expect("read");
    fs::write(world.path(), &whole[..whole.len() - 1]).expect("cut");
    let log = world.open().await;
    assert_eq!(log.continuity(), Continuity::Gap { first: 4, last: 4 });
    world.tell(2).await;
    log.close().await;
    assert_eq!(read_all(world.path()), [1, 2, 3, 5, 6]);
    // The gap is old news, and nothing behind it is harmed.
    world.tell(1).await;
    world.open().await.close().await;
    assert_eq!(read_all(world.path()), [1, 2, 3, 5, 6, 7]);
}

#[tokio::test]
async fn a_log_ahead_of_its_database_is_told_and_numbers_go_on_behind_it() {
    let world = World::new();
    world.tell(9).await;
    world.open().await.close().await;
    let fresh = World::new();
    fs::create_dir_all(fresh.path().parent().expect("has one")).expect("made");
    fs::copy(world.path(), fresh.path()).expect("copied");
    let log = fresh.open().await;
    assert_eq!(
        log.continuity(),
        Continuity::FileAhead { file: 9, store: 0 }
    );
    fresh.tell(2).await;
    log.close().await;
    assert_eq!(read_all(fresh.path()), numbers(1, 11));
}

#[tokio::test]
async fn rotation_splits_no_line_and_keeps_so_many_files() {
    let mut world = World::new();
    world.settings.rotate_bytes = 1000;
    world.settings.keep_files = 3;
    let log = world.open().await;
    world.tell(100).await;
    log.close().await;
    for number in 0..=3 {
        let path = match number {
            0 => world.path().to_owned(),
            number => world.finished(number),
        };
        let text = fs::read_to_string(&path).expect("is there");
        assert!(text.len() <= 1000 && text.ends_with('\n'), "{number}");
        for line in text.lines() {
            serde_json::from_str::<Line>(line).expect("a whole line");
        }
    }
    assert!(!world.finished(4).exists());
    let kept = read_all(world.path());
    assert_eq!(kept, numbers(kept[0], 100));
    assert!(kept.len() > 15);
}

/// A rotation is `1 -> 2`, then the current file `-> 1`, then a new one: the
/// states between are made here by hand, from a log with two files.
#[tokio::test]
async fn a_kill_between_any_two_steps_of_a_rotation_loses_and_doubles_nothing() {
    for done in 0..=3 {
        for keep in [2, 5] {
            let mut world = World::new();
            world.settings.rotate_bytes = 400;
            world.settings.keep_files = keep;
            world.tell(6).await;
            world.copy_and_kill().await;
            assert!(world.finished(1).exists(), "it was rotated once");
            if done > 0 {
                if world.finished(2).exists() {
                    fs::rename(world.finished(2), world.finished(3)).expect("moved");
                }
                fs::rename(world.finished(1), world.finished(2)).expect("moved");
            }
            if done > 1 {
                fs::rename(world.path(), world.finished(1)).expect("moved");
            }
            if done > 2 {
                fs::write(world.path(), "").expect("begun");
            }
            world.tell(2).await;
            assert_eq!(world.copy_and_kill().await, Continuity::Whole, "{done}");
            let kept = read_all(world.path());
            assert_eq!(kept, numbers(kept[0], 8), "{done} steps, {keep} kept");
            if keep == 5 {
                assert_eq!(kept[0], 1, "{done} steps");
            }
        }
    }
}

#[tokio::test]
async fn a_log_that_was_moved_away_is_begun_again_without_a_gap() {
    let mut world = World::new();
    world.settings.settle = Duration::from_millis(1);
    let log = world.open().await;
    world.tell(3).await;
    let mut written = log.written();
    written.wait_for(|seq| *seq == 3).await.expect("lives");
    let settled = async {
        while world.waiting().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, settled)
        .await
        .expect("settles");
    fs::rename(world.path(), world.dir.path().join("away")).expect("moved");
    world.tell(3).await;
    let begun = async {
        while read_all(world.path()) != [4, 5, 6] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, begun)
        .await
        .expect("4 to 6 are in a new file");
    log.close().await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_loses_nothing_and_goes_on_when_it_can() {
    let mut world = World::new();
    world.settings.rotate_bytes = 300;
    world.settings.keep_files = 100;
    let log = world.open().await;
    // The name that a rotation needs is taken by something that cannot be
    // replaced by a file; that stops root as well.
    fs::create_dir(world.finished(1)).expect("made");
    fs::write(world.finished(1).join("x"), "").expect("made");
    fs::create_dir(world.finished(2)).expect("made");
    fs::write(world.finished(2).join("x"), "").expect("made");
    for number in 3..=100 {
        fs::write(world.finished(number), "").expect("made");
    }
    fs::remove_file(world.finished(100)).expect("removed");
    fs::create_dir(world.finished(100)).expect("made");
    world.tell(20).await;
    let told = async {
        loop {
            let told = world
                .store
                .read(|reader| reader.events_after(0, 1000))
                .await
                .expect("read")
                .iter()
                .filter(|(_, line)| line.contains("disk.refused"))
                .count();
            if told > 0 {
                return told;
            }
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(DEADLINE, told)
        .await
        .expect("it is told");
    assert_eq!(told, 1);
    for number in 1..=100 {
        let path = world.finished(number);
        if path.is_dir() {
            fs::remove_dir_all(path).expect("removed");
        } else {
            fs::remove_file(path).expect("removed");
        }
    }
    log.close().await;
    assert_eq!(read_all(world.path()), numbers(1, 21));
}

#[tokio::test]
async fn a_reader_that_follows_sees_every_line_once_across_rotations() {
    let mut world = World::new();
    world.settings.rotate_bytes = 700;
    world.settings.keep_files = 50;
    world.tell(5).await;
    let log = world.open().await;
    let path = world.path().to_owned();
    let follower = tokio::spawn(async move {
        let mut reader = EventReader::open(&path, EventFilter::default()).expect("opens");
        let mut seqs = Vec::new();
        while seqs.last() != Some(&105) {
            let line = reader.follow_line().await.expect("reads");
            seqs.push(
                serde_json::from_str::<Line>(&line)
                    .expect("a whole line")
                    .seq,
            );
        }
        seqs
    });
    for _ in 0..20 {
        world.tell(5).await;
        tokio::task::yield_now().await;
    }
    let seqs = tokio::time::timeout(DEADLINE, follower)
        .await
        .expect("all of them come")
        .expect("no panic");
    assert_eq!(seqs, numbers(1, 105));
    log.close().await;
}

#[tokio::test]
async fn a_line_that_is_not_whole_yet_waits() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.jsonl");
    let line = r#"{"seq":1,"ts":"2026-11-30T00:00:00.000Z","level":"info","node":"n","event":"daemon.stopped","reason":"x"}"#;
    for cut in 0..=line.len() {
        fs::write(&path, &line[..cut]).expect("written");
        let mut reader = EventReader::open(&path, EventFilter::default()).expect("opens");
        assert_eq!(reader.next_line().expect("reads"), None, "byte {cut}");
        fs::write(&path, format!("{line}\n")).expect("written");
        assert_eq!(reader.next_line().expect("reads").as_deref(), Some(line));
    }
}

#[tokio::test]
async fn a_reader_shows_what_was_asked_for() {
    let world = World::new();
    let log = world.open().await;
    let entries = [
        Entry::new(LogEvent::DeliveryDone { ms: 1 })
            .of_item("github:Acme/App#1")
            .of_delivery("d-1"),
        Entry::new(LogEvent::DeliveryDuplicate { of: "d-1".into() }).of_delivery("d-1"),
        Entry::new(LogEvent::WebhookRejected { reason: "x".into() }),
    ];
    for entry in entries {
        world.store.tell(entry).await.expect("stored");
    }
    log.close().await;
    let count = |filter| {
        let mut reader = EventReader::open(world.path(), filter).expect("opens");
        std::iter::from_fn(move || reader.next_line().expect("reads")).count()
    };
    let event = |glob: &str| EventFilter {
        event: Some(Glob::new(glob).expect("a glob").compile_matcher()),
        ..EventFilter::default()
    };
    assert_eq!(count(EventFilter::default()), 3);
    assert_eq!(count(event("delivery.*")), 2);
    assert_eq!(count(event("webhook.rejected")), 1);
    let item = EventFilter {
        work_item: Some("github:acme/app#1".into()),
        ..EventFilter::default()
    };
    assert_eq!(count(item), 1);
    let delivery = EventFilter {
        delivery: Some("d-1".into()),
        ..EventFilter::default()
    };
    assert_eq!(count(delivery), 2);
    let future = EventFilter {
        since: Some(i64::MAX / 4_000_000),
        ..EventFilter::default()
    };
    assert_eq!(count(future), 0);
    let after = EventFilter {
        after: 2,
        ..EventFilter::default()
    };
    assert_eq!(count(after), 1);
}

/// What the code can tell and what it says it can tell come from one list; this
/// holds the list to the shape that readers filter by.
#[test]
fn the_catalogue_names_every_event_in_its_documented_form() {
    for row in CATALOGUE {
        let parts: Vec<_> = row.name.split('.').collect();
        assert_eq!(parts.len(), 2, "{}", row.name);
        assert!(
            parts.iter().all(|part| part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')),
            "{}",
            row.name
        );
        assert!(row.meaning.ends_with('.'), "{}", row.name);
        for taken in [
            "seq",
            "ts",
            "level",
            "event",
            "node",
            "work_item",
            "delivery",
        ] {
            assert!(!row.fields.contains(&taken), "{} hides {taken}", row.name);
        }
    }
}
