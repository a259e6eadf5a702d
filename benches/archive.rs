//! How long archiving work takes beside `git stash --include-untracked` of the
//! same work.
//!
//! - A1: a checkout with changed and new files is archived, read back and removed,
//!   until the caller is answered.
//! - A2: the same restored.
//!
//! ```text
//! cargo bench --bench archive [-- --dir DIR] [--json FILE] [--files 50000]
//!                             [--changed 1000] [--rounds N]
//! ```
//!
//! Both sides of a pair are measured in turn on the same file system, with
//! everything written out before. Use a file system with a journal.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::{Strategy, Wanted};
use innkeeper::domain::repo_target::RepoTarget;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::{Cleanup, Facts, PrepareOptions, Workspace, WorkspaceOptions};
use support::{Bound, Disk, Figure, Figures, Floor, HOST, Options, Origin, Pairs};
use support::{millis, settled};
use tokio_util::sync::CancellationToken;

const STASH: &str = "git stash --include-untracked";

fn main() -> anyhow::Result<()> {
    let options = Options::parse("archive", &["--files", "--changed", "--rounds"])?;
    let disk = Disk::of(&options.dir);
    disk.tell(&options.dir);
    let rounds = options.number("--rounds", 5)?;
    let changed = options.number("--changed", 1000)?;
    let mut figures = Figures::on(disk);
    for files in options.list("--files", "50000") {
        let files: usize = files.parse().with_context(|| format!("--files {files}"))?;
        measure(&options, files, changed, rounds, &mut figures)?;
    }
    figures.report(&options.json)
}

fn measure(
    options: &Options,
    files: usize,
    changed: usize,
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
        owner: "acme".into(),
        repo: "widgets".into(),
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
    let (mut out, mut back) = (Pairs::default(), Pairs::default());
    // The first round clones, and warms both sides up.
    for round in 0..=rounds {
        let (theirs, added) = floor.add(&origin.main)?;
        let prepared = runtime.block_on(workspace.prepare(
            &target,
            &format!("bench-{round}"),
            (ItemKind::Issue, round as u64 + 1),
            &Wanted::Named {
                commit: Some(origin.main.clone()),
                branch: None,
            },
            PrepareOptions {
                strategy: Some(Strategy::Worktree),
                ..PrepareOptions::default()
            },
            &cancel,
        ))?;
        work(&theirs, changed)?;
        work(&prepared.record.path, changed)?;
        // Nobody closes an item in the second in which the last file was written.
        std::thread::sleep(Duration::from_millis(2100));
        settled(dir)?;
        let stashed = floor.stash(&theirs)?;
        settled(dir)?;
        let began = Instant::now();
        let cleanup = runtime.block_on(workspace.cleanup(
            &prepared.record,
            &facts,
            &AtRisk::Archive,
            &cancel,
        ))?;
        let archived = began.elapsed();
        let Cleanup::Cleaned {
            archive: Some(archive),
            ..
        } = cleanup
        else {
            anyhow::bail!("it was not archived: {cleanup:?}");
        };
        settled(dir)?;
        let began = Instant::now();
        let restored = runtime.block_on(workspace.restore(&archive.id, &target, &cancel))?;
        let restoring = began.elapsed();
        ensure!(restored.differs.is_empty(), "{:?}", restored.differs);
        if round > 0 {
            out.push(millis(stashed), millis(archived));
            back.push(millis(added), millis(restoring));
        }
        floor.remove(&theirs)?;
    }
    figures.push(Figure {
        name: "A1",
        what: format!("Workspace::cleanup with an archive, {changed} of {files} files"),
        floor: STASH,
        unit: "ms",
        pairs: out,
        bound: Bound::Ratio(3.0),
    });
    figures.push(Figure {
        name: "A2",
        what: format!("Workspace::restore, {changed} of {files} files"),
        floor: "git worktree add --detach",
        unit: "ms",
        pairs: back,
        bound: Bound::Ratio(4.0),
    });
    Ok(())
}

/// Edits half of the files, evenly over the tree, and adds as many new ones.
fn work(checkout: &Path, changed: usize) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut waiting = vec![checkout.join("src")];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let edited = changed / 2;
    ensure!(files.len() >= edited, "too few files");
    let step = files.len() / edited.max(1);
    for file in files.iter().step_by(step).take(edited) {
        let mut text = std::fs::read_to_string(file)?;
        text.push_str("    // edited\n");
        std::fs::write(file, &text)?;
        std::fs::write(file.with_extension("new"), text)?;
    }
    Ok(())
}
