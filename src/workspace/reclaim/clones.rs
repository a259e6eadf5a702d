//! Shared clones and vaults that nobody needs any more.
//!
//! Both go together, under the writer's lock, by renames into the trash: the
//! shared clone first, because it borrows the vault's objects. A vault without
//! a shared clone, which a crash between the two leaves, is what preparing makes
//! a shared clone for, and what the next look finds idle again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Reclaiming, carried_out, seconds_since};
use crate::domain::reclaim::{CloneUse, Holding, HoldingKind, judge_clones};
use crate::files;
use crate::git::ctl;
use crate::process::inside::{Inside, processes_inside};
use crate::workspace::journal::{self, Journal};
use crate::workspace::landed::Landed;
use crate::workspace::layout::{Layout, RepoPath, names_in};
use crate::workspace::repository::Repository;
use crate::workspace::survey::entries;
use crate::workspace::vault::{self, Marker};
use crate::workspace::{Inner, WorkspaceError, blocking, shared, trash};

/// Refs of the vault that archives pin their objects with.
const ARCHIVES: &str = "refs/innkeeper/archive/*";

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Returns every repository's clones, and what became of them.
pub(super) async fn clones(
    inner: &Arc<Inner>,
    how: Reclaiming,
) -> Result<Vec<Holding>, WorkspaceError> {
    let layout = inner.layout()?.clone();
    let known = {
        let layout = layout.clone();
        blocking(move || Ok(layout.known_repositories())).await?
    };
    let mut found = Vec::new();
    for names in known {
        let repository = inner.repository_unused(names)?;
        let writer = repository.writer.try_lock();
        let is_busy = writer.is_err();
        let (place, repo) = (layout.clone(), Arc::clone(&repository));
        found.extend(blocking(move || Ok(one(&place, &repo, is_busy, how))).await?);
        drop(writer);
    }
    Ok(found)
}

fn one(layout: &Layout, repository: &Repository, is_busy: bool, how: Reclaiming) -> Vec<Holding> {
    let used = CloneUse {
        halted: how.halted,
        busy: is_busy,
        ..use_of(layout, repository)
    };
    let judged = judge_clones(&used);
    let mut found = Vec::new();
    let mut gone = true;
    for (kind, path) in [
        (HoldingKind::SharedClone, &repository.shared),
        (HoldingKind::Vault, &repository.vault),
    ] {
        if fs::symlink_metadata(path).is_err() {
            continue;
        }
        let judged = if gone {
            judged.clone()
        } else {
            Err("its shared clone is there".to_owned())
        };
        let row = carried_out(kind, path, judged, how.dry_run, || {
            take_away(layout, path).map_err(|error| error.to_string())
        });
        gone &= how.dry_run || fs::symlink_metadata(path).is_err();
        found.push(row);
    }
    found
}

fn take_away(layout: &Layout, path: &Path) -> Result<(), WorkspaceError> {
    // What a directory of the trash is called says nothing; its ending does.
    let id = format!("clone-{}", crate::workspace::nonce());
    files::rename_noreplace(path, &trash::deleting(&layout.trash(), &id))?;
    let stop = if path.starts_with(layout.vaults()) {
        layout.vaults()
    } else {
        layout.root().to_owned()
    };
    files::remove_empty_parents(path, &stop);
    Ok(())
}

fn use_of(layout: &Layout, repository: &Repository) -> CloneUse {
    let checkouts = Journal::slugs(&repository.vault);
    let worktrees = repository.shared.join("worktrees");
    let records: Vec<String> = names_in(&worktrees)
        .into_iter()
        .filter(|name| !checkouts.contains(name))
        .collect();
    let is_real = |path: &Path| fs::canonicalize(path).is_ok_and(|real| real == path);
    let marker = Some(Marker::of(&repository.names));
    let has_shared = fs::symlink_metadata(&repository.shared).is_ok();
    let ours = is_real(&repository.vault)
        && Marker::read(&vault::marker_path(&repository.vault)) == marker
        && (!has_shared
            || (is_real(&repository.shared)
                && Marker::read(&repository.shared.join(shared::MARKER)) == marker));
    let at_risk = if ours && has_shared {
        at_risk(repository).unwrap_or_else(|why| vec![why])
    } else {
        Vec::new()
    };
    let processes = processes_inside(&[&repository.shared, &repository.vault], &[]).map_or_else(
        |error| vec![error.to_string()],
        |found| found.iter().map(Inside::to_string).collect(),
    );
    let times = [journal::dir_of(&repository.vault), worktrees];
    CloneUse {
        halted: false,
        busy: false,
        ours,
        checkouts,
        foreign_worktrees: records,
        archives: archives_of(layout, repository),
        set_aside: entries(&repository.shared.join(shared::TRASH)).len() as u64,
        at_risk,
        processes,
        idle_days: times
            .iter()
            .filter_map(|dir| fs::metadata(dir).and_then(|stat| stat.modified()).ok())
            .max()
            .and_then(|then: SystemTime| seconds_since(then))
            .map(|seconds| seconds / DAY_SECONDS),
    }
}

/// What exists only in the shared clone: commits of any ref that an agent could
/// have made, and the stash.
fn at_risk(repository: &Repository) -> Result<Vec<String>, String> {
    let words = |error: git2::Error| error.message().to_owned();
    ctl::ensure(&repository.ctl, &repository.shared).map_err(|error| error.to_string())?;
    let view = vault::open(&repository.ctl).map_err(|error| error.to_string())?;
    let mut tips = BTreeSet::new();
    let mut found = Vec::new();
    for reference in view.references().map_err(words)? {
        let reference = reference.map_err(words)?;
        let name = String::from_utf8_lossy(reference.name_bytes()).into_owned();
        if name == "refs/stash" {
            found.push("the stash".to_owned());
            continue;
        }
        match reference.peel_to_commit() {
            Ok(commit) => {
                tips.insert(commit.id().to_string());
            }
            // A symbolic ref that names nothing, as after a rename at the remote.
            Err(error)
                if error.code() == git2::ErrorCode::NotFound
                    && reference.symbolic_target_bytes().is_some() => {}
            Err(error) => found.push(format!("{name}: {}", error.message())),
        }
    }
    let landed = Landed {
        ctl: &repository.ctl,
        vault: &repository.vault,
        heads: &[],
    };
    let commits = landed.at_risk(&tips).map_err(|error| error.to_string())?;
    found.extend(commits.into_iter().map(|commit| commit.shown));
    Ok(found)
}

/// How many archives are pinned in the vault, or are of this repository; one
/// that cannot be read may be.
fn archives_of(layout: &Layout, repository: &Repository) -> u64 {
    let pinned = vault::open(&repository.vault)
        .and_then(|vault| Ok(vault.references_glob(ARCHIVES)?.count()))
        .unwrap_or(1);
    let mut stored = 0;
    for slug in entries(&layout.archives()) {
        let dir = layout.archives().join(&slug);
        for id in entries(&dir) {
            let of = archived_repository(&dir.join(id).join("manifest.json"));
            stored += usize::from(of.is_none_or(|of| of == repository.names));
        }
    }
    pinned.max(stored) as u64
}

/// Returns which repository an archive is of, by its manifest.
fn archived_repository(manifest: &Path) -> Option<RepoPath> {
    #[derive(serde::Deserialize)]
    struct Named {
        host: String,
        owner: String,
        repo: String,
    }
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest).ok()?).ok()?;
    // Beside the summary's other fields, or below a field of its own.
    let record = manifest
        .get("record")
        .or_else(|| manifest.get("summary")?.get("record"))?;
    let Named { host, owner, repo } = serde_json::from_value(record.clone()).ok()?;
    Some(RepoPath { host, owner, repo })
}
