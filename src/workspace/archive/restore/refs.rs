//! Branches, HEAD and the stash of a restored worktree, which it shares with
//! other checkouts: nothing of theirs is moved, and what cannot be had is told.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Loaded;
use crate::files;
use crate::git::ctl;
use crate::workspace::archive::content;
use crate::workspace::archive::manifest::LOGS;
use crate::workspace::archive::shelf;
use crate::workspace::identity::read_line;
use crate::workspace::probe::reflog::parse_reflog;
use crate::workspace::repository::Repository;
use crate::workspace::worktree::{self, holder_of};
use crate::workspace::{Inner, WorkspaceError, blocking, vault};

/// Makes the branches that are not there any more, and returns those that are
/// somewhere else, in words. The branch lock is held. Blocking.
pub(super) fn bring_back_branches(
    repository: &Repository,
    loaded: &Loaded,
) -> Result<Vec<String>, WorkspaceError> {
    let mut differs = Vec::new();
    ctl::ensure(&repository.ctl, &repository.shared)?;
    let view = vault::open(&repository.ctl)?;
    for (branch, tip) in &loaded.manifest.branches {
        let name = format!("refs/heads/{branch}");
        let wanted = vault::parse_oid(tip)?;
        match vault::tip(&view, &name)? {
            Some(found) if found == wanted => {}
            Some(found) => differs.push(format!("branch `{branch}` is at {found}, not at {tip}")),
            None => {
                if let Some(other) = vault::in_the_way(&view, "refs/heads/", branch)?.first() {
                    differs.push(format!("branch `{branch}` cannot stand beside `{other}`"));
                    continue;
                }
                view.reference(&name, wanted, false, "")?;
                bring_back_log(repository, loaded, &name)?;
            }
        }
    }
    Ok(differs)
}

/// Whether the branch that the preparation made is where the archive has it, and
/// no other checkout's. The branch lock is held. Blocking.
pub(super) fn has_its_branch(
    repository: &Repository,
    loaded: &Loaded,
) -> Result<bool, WorkspaceError> {
    let record = loaded.record();
    let Some(branch) = &record.branch else {
        return Ok(false);
    };
    let name = format!("refs/heads/{branch}");
    let tip = vault::tip(&vault::open(&repository.ctl)?, &name)?;
    Ok(
        tip.map(|tip| tip.to_string()).as_ref() == loaded.manifest.branches.get(branch)
            && tip.is_some()
            && holder_of(&repository.shared, &name, record.record.as_deref()).is_none()
            && !worktree::is_of_another(repository, record, branch),
    )
}

/// Gives a branch that was just made the log of the one that was deleted.
fn bring_back_log(
    repository: &Repository,
    loaded: &Loaded,
    name: &str,
) -> Result<(), WorkspaceError> {
    let wanted = format!("{LOGS}/{name}");
    let path = repository.shared.join("logs").join(name);
    let mut text = None;
    let listed = loaded
        .entries
        .iter()
        .any(|entry| entry.path.0 == wanted.as_bytes());
    if !listed || fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    content::read(&loaded.dir, &loaded.entries, |entry, from| {
        if entry.path.0 == wanted.as_bytes() {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes)
                .map_err(|error| error.to_string())?;
            text = Some(bytes);
        }
        Ok(())
    })
    .map_err(|why| shelf::corrupt(&loaded.manifest.summary.id, &why))?;
    if let Some(text) = text {
        if let Some(parent) = path.parent() {
            files::create_dirs(parent)?;
        }
        files::create_new(&path, &text)?;
    }
    Ok(())
}

/// Decides what HEAD of the restored worktree says: what it said, if the branch
/// is where it was and nobody else has it; else the commit. Returns why, then.
/// The branch lock is held. Blocking.
pub(super) fn head(
    repository: &Repository,
    loaded: &Loaded,
    admin: &Path,
) -> Result<Option<(String, String)>, WorkspaceError> {
    let said = read_line(&admin.join("HEAD"))
        .map_err(|why| shelf::corrupt(&loaded.manifest.summary.id, &why))?;
    let Some(name) = said.strip_prefix("ref: ") else {
        return Ok(None);
    };
    let record = loaded.record();
    let own = record.record.as_deref();
    let view = vault::open(&repository.ctl)?;
    let tip = vault::tip(&view, name)?.map(|tip| tip.to_string());
    let holder = holder_of(&repository.shared, name, own);
    let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
    let why = if let Some(holder) = holder {
        format!("branch `{branch}` is checked out in `{holder}`")
    } else if worktree::is_of_another(repository, record, branch) {
        format!("branch `{branch}` is another checkout's")
    } else if tip != loaded.manifest.head_commit {
        let tip = tip.as_deref().unwrap_or("nowhere");
        format!("branch `{branch}` is at {tip}")
    } else {
        return Ok(None);
    };
    let commit = loaded.manifest.head_commit.as_ref();
    let text = format!("{}\n", commit.unwrap_or(&record.commit));
    Ok(Some((text, format!("HEAD is detached: {why}"))))
}

/// What the shared stash says.
struct Stack {
    top: Option<String>,
    listed: Vec<String>,
}

impl Stack {
    fn read(repository: &Repository) -> Result<Self, WorkspaceError> {
        files::create_dirs(&repository.shared.join("logs/refs"))?;
        ctl::ensure(&repository.ctl, &repository.shared)?;
        let log = fs::read(repository.shared.join("logs/refs/stash")).unwrap_or_default();
        let listed = parse_reflog(&log).unwrap_or_default();
        let top = vault::tip(&vault::open(&repository.ctl)?, "refs/stash")?;
        Ok(Self {
            top: top.map(|top| top.to_string()),
            listed: listed.into_iter().filter_map(|entry| entry.new).collect(),
        })
    }
}

/// Puts those entries back on the stash that are not there, oldest first.
pub(super) async fn bring_back_stash(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let stash = &loaded.manifest.stash;
    if stash.is_empty() {
        return Ok(());
    }
    let _writer = repository.write_lock(inner, cancel).await?;
    let update = || {
        inner.git().map(|git| {
            git.command("update-ref")
                .git_dir(&repository.ctl)
                .env("GIT_COMMITTER_NAME", "Innkeeper")
                .env("GIT_COMMITTER_EMAIL", "innkeeper@localhost")
        })
    };
    let read = || {
        let repo = Arc::clone(repository);
        blocking(move || Stack::read(&repo))
    };
    let mut stack = read().await?;
    // An entry whose line in the log expired is not listed any more, and a ref
    // that does not move gets no line: it is taken away, then put back.
    if stack.listed.is_empty()
        && let Some(top) = stack
            .top
            .filter(|top| stash.iter().any(|entry| entry.commit == *top))
    {
        update()?
            .args(["-d", "refs/stash", &top])
            .run(cancel)
            .await?;
        stack.top = None;
    } else {
        stack = read().await?;
    }
    for entry in stash.iter().rev() {
        if stack.listed.contains(&entry.commit) {
            continue;
        }
        let seconds = entry.seconds.clamp(0, i64::from(u32::MAX));
        let before = stack.top.unwrap_or_else(|| "0".repeat(40));
        update()?
            .env("GIT_COMMITTER_DATE", format!("@{seconds} +0000"))
            .args(["--create-reflog", "-m", &entry.message, "refs/stash"])
            .args([&entry.commit, &before])
            .run(cancel)
            .await?;
        stack = read().await?;
    }
    Ok(())
}
