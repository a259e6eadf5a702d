//! Preparing: from a work item to a checkout at its commit.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::fetch::{self, Got, Want};
use super::identity::{self, IdentityError};
use super::journal::{Journal, Phase};
use super::options::{MissingBranch, PrepareOptions};
use super::repository::{Ensured, Repository};
use super::{Inner, Workspace, WorkspaceError, blocking, clone, rebuild, update, vault, worktree};
use crate::domain::checkout::{CheckoutRecord, Strategy, Wanted};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::domain::work_item::ItemKind;
use crate::files;

/// A checkout that is ready, and how it came to be.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Everything that tells it apart.
    pub record: CheckoutRecord,
    /// This call asked the remote for objects.
    pub fetched: bool,
    /// Another call's clone or fetch brought what was missing.
    pub coalesced: bool,
    /// It was there already, and was left as it is.
    pub reused: bool,
    /// The default branch was given for a head that could not be had.
    pub fallback: bool,
    /// Why it is not on a branch, if it was to be on one.
    pub detached_because: Option<String>,
    /// What was found changed in the shared clone, and restored.
    pub drift: Vec<String>,
}

/// What exactly to make.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub slug: String,
    pub item: (ItemKind, u64),
    pub commit: Oid,
    pub branch: Option<String>,
    pub push_off: bool,
    pub clone_url: String,
}

/// The longest component of a branch that a file system holds, with `.lock`.
const BRANCH_COMPONENT_BYTES_MAX: usize = 250;

impl Workspace {
    /// Returns a checkout of what is wanted, made if there is none.
    ///
    /// A checkout that exists is verified and returned as it is, wherever it
    /// is: a session may have work in it. After a crash at any point, calling
    /// again converges.
    ///
    /// # Errors
    ///
    /// With a code that says whether to try again; nothing half-made is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels; what was made is undone in the background.
    pub async fn prepare(
        &self,
        target: &RepoTarget,
        slug: &str,
        item: (ItemKind, u64),
        wanted: &Wanted,
        options: PrepareOptions,
        cancel: &CancellationToken,
    ) -> Result<Prepared, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (target, slug, wanted) = (target.clone(), slug.to_owned(), wanted.clone());
        let work = async move {
            let request = Request {
                target,
                slug,
                item,
                wanted,
                options,
            };
            match request.run(&inner, &cancel).await {
                Err(error)
                    if error.code() == FailureCode::Corrupt
                        && request.heal(&inner, &error, &cancel).await? =>
                {
                    request.run(&inner, &cancel).await
                }
                outcome => outcome,
            }
        };
        super::joined(tokio::spawn(work)).await
    }
}

struct Request {
    target: RepoTarget,
    slug: String,
    item: (ItemKind, u64),
    wanted: Wanted,
    options: PrepareOptions,
}

impl Request {
    /// Has what is damaged made anew; false if nothing is.
    async fn heal(
        &self,
        inner: &Arc<Inner>,
        error: &WorkspaceError,
        cancel: &CancellationToken,
    ) -> Result<bool, WorkspaceError> {
        tracing::warn!(%error, "Git says that something is corrupt.");
        let repository = inner.repository(&self.target).await?;
        rebuild::heal(inner, &repository, &self.target, cancel).await
    }

    async fn run(
        &self,
        inner: &Arc<Inner>,
        cancel: &CancellationToken,
    ) -> Result<Prepared, WorkspaceError> {
        require_slug(&self.slug)?;
        let want = want_of(&self.wanted)?;
        let repository = inner.repository(&self.target).await?;
        let _one = inner.slug_lock(&repository, &self.slug, cancel).await?;
        if let Some(record) = self.existing(inner, &repository, cancel).await? {
            return Ok(Prepared {
                record,
                fetched: false,
                coalesced: false,
                reused: true,
                fallback: false,
                detached_because: None,
                drift: Vec::new(),
            });
        }
        let strategy = self.options.strategy.unwrap_or(inner.options.strategy);
        inner.require_space().await?;
        self.require_free_place(inner, &repository, strategy)
            .await?;
        let ensured = repository.ensure(inner, &self.target, cancel).await?;
        let (got, fallback) = self.commit(inner, &repository, want, cancel).await?;
        let drift = repository.restore_drift(&self.target).await?;
        let (order, too_long) = self.order(&got, fallback, strategy);
        let made = match strategy {
            Strategy::Worktree => worktree::make(inner, &repository, &order, cancel).await?,
            Strategy::Clone => clone::make(inner, &repository, &order, cancel).await?,
        };
        let Ensured { cloned, waited } = ensured;
        Ok(Prepared {
            record: made.record,
            fetched: cloned || got.fetched,
            coalesced: !(cloned || got.fetched) && (waited || got.coalesced),
            reused: false,
            fallback,
            detached_because: made.detached_because.or(too_long),
            drift,
        })
    }

    /// Returns the checkout of this slug if there is one, finishing or undoing
    /// what a crash left.
    async fn existing(
        &self,
        inner: &Arc<Inner>,
        repository: &Arc<Repository>,
        cancel: &CancellationToken,
    ) -> Result<Option<CheckoutRecord>, WorkspaceError> {
        let (vault, slug) = (repository.vault.clone(), self.slug.clone());
        let mut journal = blocking(move || Journal::read(&vault, &slug)).await?;
        if let Some(Journal {
            phase: Phase::Moving { .. },
            ..
        }) = &journal
        {
            journal = update::finish_move(inner, repository, &self.slug, true, cancel).await?;
        }
        let layout = inner.layout()?.clone();
        let (repository, slug) = (Arc::clone(repository), self.slug.clone());
        let (remembered, item) = (self.options.remembered.clone(), self.item);
        blocking(move || {
            let record = match journal {
                Some(journal) => match journal.phase {
                    Phase::Ready | Phase::Moving { .. } => Some(journal.record),
                    Phase::Preparing { .. } => {
                        worktree::undo(&layout, &repository, &slug)?;
                        None
                    }
                    Phase::Removing { .. } => {
                        return Err(WorkspaceError::new(
                            FailureCode::LockTimeout,
                            format!("`{}` is being removed", journal.record.path.display()),
                        ));
                    }
                },
                None => None,
            };
            let (record, is_journaled) = match (record, remembered) {
                (Some(record), Some(remembered)) if record.nonce != remembered.nonce => {
                    return Err(disagree(
                        &remembered.path,
                        "two different checkouts are remembered",
                    ));
                }
                (Some(record), _) => (record, true),
                (None, Some(remembered)) => (remembered, false),
                (None, None) => return Ok(None),
            };
            match identity::locate(&layout, &record) {
                Ok(_) if record.slug != slug || (record.kind, record.number) != item => {
                    Err(disagree(&record.path, "it is another item's"))
                }
                Ok(_) => {
                    if !is_journaled {
                        Journal::new(Phase::Ready, record.clone()).write(&repository.vault)?;
                    }
                    Ok(Some(record))
                }
                Err(IdentityError::Missing { .. }) => {
                    if record.strategy == Strategy::Worktree {
                        worktree::set_missing_aside(&repository, &record)?;
                    }
                    Journal::remove(&repository.vault, &slug)?;
                    Ok(None)
                }
                Err(error @ IdentityError::Foreign { .. }) => Err(WorkspaceError::new(
                    FailureCode::PathOccupied,
                    error.to_string(),
                )),
            }
        })
        .await
    }

    /// Looks before anything is fetched whether the place is taken.
    async fn require_free_place(
        &self,
        inner: &Arc<Inner>,
        repository: &Repository,
        strategy: Strategy,
    ) -> Result<(), WorkspaceError> {
        let layout = inner.layout()?;
        let mut places = vec![match strategy {
            Strategy::Worktree => layout.worktree_dir(&repository.names, &self.slug),
            Strategy::Clone => layout.clone_dir(&repository.names, &self.slug),
        }];
        if strategy == Strategy::Worktree {
            places.push(worktree::admin_dir(repository, &self.slug));
        }
        blocking(move || {
            for place in places {
                let is_taken = match fs::symlink_metadata(&place) {
                    Ok(stat) if stat.is_dir() => {
                        fs::read_dir(&place).map_or(true, |mut entries| entries.next().is_some())
                    }
                    Ok(_) => true,
                    Err(_) => false,
                };
                if is_taken {
                    return Err(disagree(&place, "nothing says that Innkeeper made it"));
                }
            }
            Ok(())
        })
        .await
    }

    /// Gets the commit, or the default branch's where that is allowed.
    async fn commit(
        &self,
        inner: &Arc<Inner>,
        repository: &Arc<Repository>,
        want: Want,
        cancel: &CancellationToken,
    ) -> Result<(Got, bool), WorkspaceError> {
        match fetch::obtain(inner, repository, &self.target, want, cancel).await {
            Ok(got) => Ok((got, false)),
            Err(error) => {
                let is_missing = error.code() == FailureCode::RefGone
                    || (error.code() == FailureCode::RefNotYet && self.options.last_attempt);
                let falls_back = is_missing
                    && inner.options.missing_branch == MissingBranch::Default
                    && matches!(self.wanted, Wanted::PullRequest { .. });
                if !falls_back {
                    return Err(error);
                }
                let got =
                    fetch::obtain(inner, repository, &self.target, Want::Default, cancel).await?;
                Ok((got, true))
            }
        }
    }

    fn order(&self, got: &Got, fallback: bool, strategy: Strategy) -> (Order, Option<String>) {
        let (mut branch, push_off) = match &self.wanted {
            Wanted::DefaultBranch => (
                got.default_branch
                    .clone()
                    .filter(|_| strategy == Strategy::Clone),
                false,
            ),
            Wanted::Named { branch, .. } => (branch.clone(), false),
            Wanted::PullRequest { .. } if fallback => (None, true),
            Wanted::PullRequest { branch, fork, .. } => (branch.clone().filter(|_| !fork), *fork),
        };
        let mut too_long = None;
        if let Some(name) = &branch
            && name
                .split('/')
                .any(|component| component.len() > BRANCH_COMPONENT_BYTES_MAX)
        {
            too_long = Some("the branch's name is too long for a file system".to_owned());
            branch = None;
        }
        let order = Order {
            slug: self.slug.clone(),
            item: self.item,
            commit: got.commit,
            branch,
            push_off,
            clone_url: self.target.clone_url.clone(),
        };
        (order, too_long)
    }
}

fn disagree(path: &Path, why: &str) -> WorkspaceError {
    WorkspaceError::new(
        FailureCode::PathOccupied,
        format!("`{}` is in the way: {why}", path.display()),
    )
}

/// A slug is a name of a directory and of a record of git's.
pub(super) fn require_slug(slug: &str) -> Result<(), WorkspaceError> {
    let fits = !slug.is_empty()
        && slug.len() <= 100
        && !slug.starts_with(['-', '~'])
        && slug
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'~');
    if fits {
        Ok(())
    } else {
        Err(WorkspaceError::new(
            FailureCode::BadInput,
            format!("{slug:?} is no acceptable slug"),
        ))
    }
}

/// Returns what has to be in the vault for what is wanted.
///
/// # Errors
///
/// `bad_input` for a commit that is no full id and a branch that git would not
/// accept.
pub(super) fn want_of(wanted: &Wanted) -> Result<Want, WorkspaceError> {
    let acceptable = |branch: &Option<String>| match branch {
        Some(name) if !git2::Reference::is_valid_name(&format!("refs/heads/{name}")) => {
            Err(WorkspaceError::new(
                FailureCode::BadInput,
                format!("{name:?} is no acceptable branch"),
            ))
        }
        _ => Ok(()),
    };
    Ok(match wanted {
        Wanted::DefaultBranch
        | Wanted::Named {
            commit: None,
            branch: None,
        } => Want::Default,
        Wanted::Named {
            commit: None,
            branch: Some(branch),
        } => {
            acceptable(&Some(branch.clone()))?;
            Want::Branch(branch.clone())
        }
        Wanted::Named {
            commit: Some(commit),
            branch,
        } => {
            acceptable(branch)?;
            Want::Commit {
                commit: vault::parse_oid(commit)?,
                pull: None,
                branch: branch.clone(),
                base: None,
                gone: false,
            }
        }
        Wanted::PullRequest {
            number,
            commit,
            branch,
            fork,
            base,
            gone,
        } => {
            let branch = branch.clone().filter(|_| !fork);
            acceptable(&branch)?;
            let base = base
                .clone()
                .filter(|base| git2::Reference::is_valid_name(&format!("refs/heads/{base}")));
            match commit {
                Some(commit) => Want::Commit {
                    commit: vault::parse_oid(commit)?,
                    pull: Some(*number),
                    branch,
                    base,
                    gone: *gone,
                },
                None => Want::Pull {
                    number: *number,
                    branch,
                    gone: *gone,
                },
            }
        }
    })
}

impl Inner {
    /// Refuses to begin anything while the disk is too full, after giving back
    /// what goes by itself.
    pub(super) async fn require_space(self: &Arc<Self>) -> Result<(), WorkspaceError> {
        let asked = || {
            let inner = Arc::clone(self);
            blocking(move || inner.too_little_space())
        };
        if asked().await?.is_none() {
            return Ok(());
        }
        // The file system answers at once; not worth a thread each time.
        self.relieve(|| self.too_little_space().is_ok_and(|low| low.is_none()))
            .await?;
        match asked().await? {
            None => Ok(()),
            Some(what) => Err(WorkspaceError::new(
                FailureCode::DiskLow,
                format!(
                    "`{}` has {what}; nothing was begun",
                    self.layout()?.root().display()
                ),
            )),
        }
    }

    /// Returns what there is too little of, and how much. Blocking.
    fn too_little_space(&self) -> Result<Option<String>, WorkspaceError> {
        let root = self.layout()?.root();
        let space =
            files::free_space(root).map_err(|error| WorkspaceError::io("examine", root, &error))?;
        let options = &self.options;
        if space.bytes < options.min_free_bytes {
            return Ok(Some(format!(
                "{} bytes left, and {} are to stay free",
                space.bytes, options.min_free_bytes
            )));
        }
        Ok(space
            .inodes
            .filter(|inodes| *inodes < options.min_free_inodes)
            .map(|inodes| {
                format!(
                    "{inodes} inodes left, and {} are to stay free",
                    options.min_free_inodes
                )
            }))
    }
}

/// Says that a disk is full where git only says that it could not write.
/// Asked before anything is undone.
pub(super) fn told_by_disk(error: WorkspaceError, path: &Path) -> WorkspaceError {
    /// Less than a file and its directory need.
    const BYTES_MIN: u64 = 64 * 1024;
    const INODES_MIN: u64 = 4;
    let is_vague = matches!(
        error.code(),
        FailureCode::Internal | FailureCode::Network | FailureCode::Corrupt
    );
    if error.is_cancelled() || !is_vague {
        return error;
    }
    match files::free_space(path) {
        Ok(space)
            if space.bytes < BYTES_MIN
                || space.inodes.is_some_and(|inodes| inodes < INODES_MIN) =>
        {
            WorkspaceError::new(
                FailureCode::DiskFull,
                format!("no space is left at `{}`: {error}", path.display()),
            )
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_and_odd_ones_are_not() {
        for slug in ["", "../x", "a/b", "-x", "A", "a b", "a.b"] {
            assert!(require_slug(slug).is_err(), "{slug}");
        }
        require_slug("acme-widgets-15-0123abcd~agent-1").expect("accepted");
        let wanted = |branch: &str, commit: Option<&str>| Wanted::PullRequest {
            number: 1,
            commit: commit.map(Into::into),
            branch: Some(branch.into()),
            fork: false,
            base: None,
            gone: false,
        };
        for branch in [
            "a..b", "", "a b", "x.lock", "a\nb", "/a", "a@{0}", "a:b", "a*",
        ] {
            let error = want_of(&wanted(branch, None)).expect_err("refused");
            assert_eq!(error.code(), FailureCode::BadInput, "{branch}");
        }
        for branch in [
            "-x",
            "--upload-pack=touch${IFS}x",
            "a+#%'b",
            "ünï/cödé",
            "HEAD",
        ] {
            want_of(&wanted(branch, None)).expect("accepted");
        }
        for commit in [
            "HEAD",
            "abc",
            "--output=x",
            &"0".repeat(40),
            &"g".repeat(40),
        ] {
            assert!(want_of(&wanted("b", Some(commit))).is_err(), "{commit}");
        }
    }
}
