//! The daemon is killed at every named point, for both strategies, and the life
//! of a pull request ends as it would have without.
//!
//! Three points share a life, one of its beginning, one of its middle, one of its
//! end. `INNKEEPER_TEST_ROUNDS=N` dies at the first N passings of every point,
//! each in a life of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use innkeeper::process::CrashPoint;

use crate::inn::rounds;
use crate::life::Life;

/// Passed only by a daemon that finds what another left when it died at the
/// first point.
const RECOVERIES: &[(&str, CrashPoint, CrashPoint)] = &[
    ("worktree", CrashPoint::RecordPlaced, CrashPoint::UndoRecord),
    ("worktree", CrashPoint::HeadSet, CrashPoint::UndoBranch),
    (
        "worktree",
        CrashPoint::FilesWritten,
        CrashPoint::UndoDirectory,
    ),
    ("clone", CrashPoint::ClonePlaced, CrashPoint::UndoDirectory),
    (
        "worktree",
        CrashPoint::TrashLooked,
        CrashPoint::RemovalTakenBack,
    ),
    (
        "clone",
        CrashPoint::DirectoryTrashed,
        CrashPoint::RemovalTakenBack,
    ),
    (
        "worktree",
        CrashPoint::RemovalCertain,
        CrashPoint::BranchDropped,
    ),
    (
        "worktree",
        CrashPoint::BranchDropped,
        CrashPoint::RecordDeleted,
    ),
    ("worktree", CrashPoint::MoveFiles, CrashPoint::MoveRef),
    ("clone", CrashPoint::JournalMoving, CrashPoint::MoveHead),
    (
        "worktree",
        CrashPoint::SessionPlanned,
        CrashPoint::SessionLaunched,
    ),
];

/// Whether a checkout made this way ever passes the point.
fn is_passed(strategy: &str, point: CrashPoint) -> bool {
    match point {
        CrashPoint::RecordWritten
        | CrashPoint::DirectoryPlaced
        | CrashPoint::RecordPlaced
        | CrashPoint::HeadSet
        | CrashPoint::BranchDropped
        | CrashPoint::DirectoryMarked
        | CrashPoint::RecordDeleted => strategy == "worktree",
        CrashPoint::CloneObjects
        | CrashPoint::CloneRefs
        | CrashPoint::ClonePlaced
        | CrashPoint::MoveObjects => strategy == "clone",
        CrashPoint::UndoRecord
        | CrashPoint::UndoBranch
        | CrashPoint::UndoDirectory
        | CrashPoint::RemovalTakenBack => false,
        _ => true,
    }
}

/// One life: its strategy, where its daemons die, and whether they must.
type Case = (&'static str, Vec<String>, bool);

/// Goes through every case, some at a time, and fails with all that failed.
fn live_all(cases: Vec<Case>) {
    const AT_ONCE: usize = 4;
    let (queue, failed) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no one panics with it").next();
                    let Some((strategy, orders, must)) = next else {
                        return;
                    };
                    let lived = std::panic::catch_unwind(AssertUnwindSafe(|| {
                        let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
                        let mut life = Life::new(strategy, &orders);
                        life.live();
                        if must {
                            assert_eq!(life.deaths, orders.len(), "each point is reached");
                        }
                    }));
                    if let Err(why) = lived {
                        let why = why
                            .downcast_ref::<String>()
                            .map_or("a panic without words", String::as_str);
                        let text = format!("== {strategy}, dying at {orders:?}: {why}");
                        failed.lock().expect("no one panics with it").push(text);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no one panics with it");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn every_point(strategy: &'static str) -> Vec<Case> {
    let passed: Vec<CrashPoint> = CrashPoint::ALL
        .iter()
        .copied()
        .filter(|point| is_passed(strategy, *point))
        .collect();
    let third = passed.len().div_ceil(3);
    let mut cases: Vec<Case> = (0..third)
        .map(|first| {
            let chain = passed.iter().skip(first).step_by(third);
            let orders = chain.map(|point| point.name().to_owned()).collect();
            (strategy, orders, true)
        })
        .collect();
    for nth in 1..=rounds(0) {
        for point in &passed {
            let order = format!("{}:{nth}", point.name());
            cases.push((strategy, vec![order], nth == 1));
        }
    }
    cases
}

#[test]
fn a_worktrees_life_goes_on_wherever_the_daemon_dies() {
    live_all(every_point("worktree"));
}

#[test]
fn a_clones_life_goes_on_wherever_the_daemon_dies() {
    live_all(every_point("clone"));
}

#[test]
fn a_daemon_that_dies_while_it_recovers_is_recovered_from() {
    let cases = RECOVERIES
        .iter()
        .map(|(strategy, first, second)| {
            let orders = vec![first.name().to_owned(), second.name().to_owned()];
            (*strategy, orders, true)
        })
        .collect();
    live_all(cases);
}

#[test]
fn every_named_point_is_died_at_by_some_life() {
    let unreached: Vec<&str> = CrashPoint::ALL
        .iter()
        .filter(|point| {
            let lived = ["worktree", "clone"]
                .iter()
                .any(|strategy| is_passed(strategy, **point));
            let recovered = RECOVERIES.iter().any(|(_, _, second)| second == *point);
            !lived && !recovered
        })
        .map(|point| point.name())
        .collect();
    assert!(unreached.is_empty(), "{unreached:?}");
}

#[test]
fn a_daemon_that_is_to_die_at_a_point_that_does_not_exist_does_not_start() {
    let mut world = crate::inn::world_of_scribes(|_| {}, "");
    let told = world
        .try_start_with(|command| {
            command.env("INNKEEPER_CRASH_AT", "nowhere");
        })
        .expect_err("refused");
    assert!(told.contains("nowhere"), "{told}");
}
