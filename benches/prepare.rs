//! How long making and removing a checkout takes beside what bare git takes.
//!
//! - P1: a checkout whose commit is here already, as the daemon tells it in
//!   `workspace.prepared` and as the library does it, against a bare
//!   `git worktree add --detach` of the same commit.
//! - P4: removing a clean checkout until the caller is answered, the gate
//!   included, against `git worktree remove --force`, which deletes at once.
//! - P5: 16 pull requests at once, from the first delivery to the last
//!   checkout, against 16 bare adds in a row.
//!
//! ```text
//! cargo bench --bench prepare [-- --dir DIR] [--json FILE] [--files 3000,50000]
//!                             [--rounds N] [--only P1,P4,P5]
//! ```
//!
//! Both sides of a pair are measured in turn on the same file system, with
//! everything written out before. Use a file system with a journal.

#![recursion_limit = "256"] // for payloads, which are one large literal

mod support;
#[path = "../tests/support/mod.rs"]
mod tests_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::{Strategy, Wanted};
use innkeeper::domain::repo_target::RepoTarget;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::{Cleanup, Facts, PrepareOptions, Workspace, WorkspaceOptions};
use support::{Bound, Disk, Figure, Figures, Floor, HOST, Options, Origin, Pairs, Tail};
use support::{millis, settled};
use tests_support::payloads::{Payload, PullRequest, Repo, deliver};
use tests_support::world::{Config, SECRET, World};
use tokio_util::sync::CancellationToken;

const AT_ONCE: usize = 16;
const OWNER: &str = "acme";
const NAME: &str = "widgets";
const ADD: &str = "git worktree add --detach";

fn main() -> anyhow::Result<()> {
    let options = Options::parse("prepare", &["--files", "--rounds", "--only"])?;
    let disk = Disk::of(&options.dir);
    disk.tell(&options.dir);
    let rounds = options.number("--rounds", 5)?;
    let only = options.list("--only", "P1,P4,P5");
    let wanted = |name: &str| only.iter().any(|one| one == name);
    let mut figures = Figures::on(disk);
    for files in options.list("--files", "3000,50000") {
        let files: usize = files.parse().with_context(|| format!("--files {files}"))?;
        if wanted("P1") || wanted("P4") {
            in_the_library(&options, files, rounds, &mut figures)?;
        }
        if wanted("P1") {
            in_the_daemon(&options, files, rounds, &mut figures)?;
        }
    }
    if wanted("P5") {
        all_at_once(&options, 3000, rounds, &mut figures)?;
    }
    figures.report(&options.json)
}

/// P1 and P4, asked of the library.
fn in_the_library(
    options: &Options,
    files: usize,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let place = tempfile::Builder::new()
        .prefix("innkeeper-bench-")
        .tempdir_in(&options.dir)?;
    let dir = place.path();
    let origin = Origin::make(&dir.join("origin.git"), files, 0)?;
    let mut floor = Floor::clone(&origin, &dir.join("floor"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let target = RepoTarget {
        host: HOST.into(),
        owner: OWNER.into(),
        repo: NAME.into(),
        clone_url: format!("file://{}", origin.path.display()),
    };
    let workspace = Workspace::with_options(WorkspaceOptions {
        min_free_bytes: 0,
        min_free_inodes: 0,
        protocols: BTreeMap::from([(HOST.to_owned(), vec!["file".to_owned()])]),
        ..WorkspaceOptions::new(dir.join("checkouts"))
    });
    let cancel = CancellationToken::new();
    let facts = Facts::of(target.clone());
    let (mut adding, mut removing) = (Pairs::default(), Pairs::default());
    // The first round clones, and warms both sides up.
    for round in 0..=rounds {
        settled(dir)?;
        let (theirs, added) = floor.add(&origin.main)?;
        settled(dir)?;
        let began = Instant::now();
        let prepared = runtime.block_on(workspace.prepare(
            &target,
            &format!("bench-{round}"),
            (ItemKind::PullRequest, round as u64 + 1),
            &Wanted::PullRequest {
                number: round as u64 + 1,
                commit: Some(origin.main.clone()),
                branch: Some(format!("topic-{round}")),
                fork: false,
                base: Some("main".into()),
                gone: false,
            },
            PrepareOptions {
                strategy: Some(Strategy::Worktree),
                ..PrepareOptions::default()
            },
            &cancel,
        ))?;
        let took = began.elapsed();
        ensure!(!prepared.reused, "it was there already");
        if round > 0 {
            ensure!(!prepared.fetched, "the commit was not present");
            adding.push(millis(added), millis(took));
        }
        // Nobody closes a request in the second in which it was opened; git
        // trusts no file that is younger than its index.
        std::thread::sleep(Duration::from_millis(2100));
        settled(dir)?;
        let removed = floor.remove(&theirs)?;
        settled(dir)?;
        let began = Instant::now();
        let cleanup = runtime.block_on(workspace.cleanup(
            &prepared.record,
            &facts,
            &AtRisk::Keep,
            &cancel,
        ))?;
        let took = began.elapsed();
        ensure!(
            matches!(cleanup, Cleanup::Cleaned { .. }),
            "it was not removed: {cleanup:?}"
        );
        if round > 0 {
            removing.push(millis(removed), millis(took));
        }
        until_empty(&dir.join("checkouts/.trash"))?;
    }
    figures.push(Figure {
        name: "P1",
        what: format!("Workspace::prepare, {files} files"),
        floor: ADD,
        unit: "ms",
        pairs: adding,
        bound: Bound::Ratio(1.10),
    });
    figures.push(Figure {
        name: "P4",
        what: format!("Workspace::cleanup, {files} files"),
        floor: "git worktree remove --force",
        unit: "ms",
        pairs: removing,
        bound: Bound::Ratio(if files < 10_000 { 0.8 } else { 0.45 }),
    });
    Ok(())
}

fn until_empty(dir: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        ensure!(Instant::now() < deadline, "the trash is not emptied");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn every_pull_request(dispatches: usize) -> Config {
    Config {
        routing: format!(
            "maxConcurrentDispatches: {dispatches}\n\
             rules:\n  - {{ name: all, when: {{ event: pull_request }}, then: start }}"
        ),
        ..Config::default()
    }
}

fn repo() -> Repo {
    Repo::new(OWNER, NAME, 7).on(HOST)
}

fn opened(number: usize, head: &str) -> Payload {
    PullRequest::new(&repo(), number as u64, head)
        .branch(&format!("topic-{number}"))
        .opened()
}

/// P1 as the daemon tells it.
fn in_the_daemon(
    options: &Options,
    files: usize,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut world = World::new_in(&options.dir, &every_pull_request(4));
    let origin = Origin::make(
        &world.origins().join(OWNER).join(format!("{NAME}.git")),
        files,
        0,
    )?;
    let dir = world.root().to_owned();
    let mut floor = Floor::clone(&origin, &dir.join("floor"))?;
    world.start();
    let mut tail = Tail::open(&world.state().join("events.jsonl"))?;
    let (mut told, mut from_outside) = (Pairs::default(), Pairs::default());
    for round in 0..=rounds {
        settled(&dir)?;
        let (theirs, added) = floor.add(&origin.main)?;
        settled(&dir)?;
        let payload = opened(round + 1, &origin.main);
        let began = Instant::now();
        world.accept(&payload);
        let (event, at) = tail
            .wait("workspace.prepared", 1)?
            .pop()
            .context("an event")?;
        if round > 0 {
            ensure!(
                event["fetched"] == false && event["commit"] == origin.main.as_str(),
                "not what was to be measured: {event}"
            );
            let ms = event["ms"].as_f64().context("ms")?;
            told.push(millis(added), ms);
            from_outside.push(millis(added), millis(at - began));
        }
        floor.remove(&theirs)?;
    }
    world.stop();
    figures.push(Figure {
        name: "P1",
        what: format!("workspace.prepared.ms, {files} files"),
        floor: ADD,
        unit: "ms",
        pairs: told,
        bound: Bound::Ratio(1.10),
    });
    figures.push(Figure {
        name: "",
        what: format!("signed POST to workspace.prepared, {files} files"),
        floor: ADD,
        unit: "ms",
        pairs: from_outside,
        bound: Bound::Told,
    });
    Ok(())
}

/// P5.
fn all_at_once(
    options: &Options,
    files: usize,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut world = World::new_in(&options.dir, &every_pull_request(AT_ONCE));
    let origin = Origin::make(
        &world.origins().join(OWNER).join(format!("{NAME}.git")),
        files,
        AT_ONCE * (rounds + 1),
    )?;
    let dir = world.root().to_owned();
    let mut floor = Floor::clone(&origin, &dir.join("floor"))?;
    // Counts what git is started for; it stands first on the daemon's PATH.
    let calls = dir.join("git-calls");
    let counter = world.root().join("bin/git");
    std::fs::write(
        &counter,
        format!(
            "#!/bin/sh\necho \"$*\" >> {}\nPATH=${{PATH#*:}} exec git \"$@\"\n",
            calls.display()
        ),
    )?;
    std::fs::set_permissions(
        &counter,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    world.start();
    let mut tail = Tail::open(&world.state().join("events.jsonl"))?;
    world.accept(&opened(AT_ONCE * (rounds + 1) + 1, &origin.main));
    tail.wait("workspace.prepared", 1)?;
    let (mut pairs, mut fetches) = (Pairs::default(), Pairs::default());
    for round in 0..=rounds {
        let numbers = (round * AT_ONCE)..((round + 1) * AT_ONCE);
        settled(&dir)?;
        let mut theirs = Vec::new();
        let began = Instant::now();
        for number in numbers.clone() {
            theirs.push(floor.add(&origin.pulls[number])?.0);
        }
        let added = began.elapsed();
        settled(&dir)?;
        std::fs::write(&calls, "")?;
        let payloads: Vec<_> = numbers
            .map(|number| opened(number + 1, &origin.pulls[number]))
            .collect();
        let address = world.webhooks();
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (index, payload) in payloads.iter().enumerate() {
                let id = format!("at-once-{round}-{index}");
                scope.spawn(move || {
                    let reply =
                        deliver(address, "/webhooks/github", SECRET.as_bytes(), &id, payload);
                    assert_eq!(reply.expect("it answers").status, 202);
                });
            }
        });
        let all = tail.wait("workspace.prepared", AT_ONCE)?;
        let last = all.last().context("an event")?.1;
        let made = |git: &str| {
            let text = std::fs::read_to_string(&calls).unwrap_or_default();
            text.lines().filter(|line| line.contains(git)).count()
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        fetches.push(1.0, made(" fetch ") as f64);
        if round > 0 {
            pairs.push(millis(added), millis(last - began));
        }
        for one in theirs {
            floor.remove(&one)?;
        }
    }
    world.stop();
    figures.push(Figure {
        name: "P5",
        what: format!("{AT_ONCE} pull requests at once, {files} files"),
        floor: "16 adds in a row",
        unit: "ms",
        pairs,
        bound: Bound::Ratio(1.15),
    });
    figures.push(Figure {
        name: "P5",
        what: "their fetches".to_owned(),
        floor: "one",
        unit: "",
        pairs: fetches,
        bound: Bound::Value(1.0),
    });
    Ok(())
}
