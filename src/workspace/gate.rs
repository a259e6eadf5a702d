//! The removal gate: looking at a checkout with all ten probes.
//!
//! What was seen becomes a verdict in `domain::gate`; here the questions are
//! asked. Nothing is changed, but for private directories that are made and
//! thrown away in the vault, and for commits fetched into it: before a commit
//! counts as being nowhere else, the remote is asked once.
//!
//! # Invariants
//!
//! 1. A question that cannot be answered is a reason to keep.
//! 2. What is looked at runs nothing of its own and is believed nothing that
//!    our own fetch did not write.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::identity::{self, Located};
use super::journal::{Journal, Phase};
use super::landed::{AtRisk, Landed};
use super::layout::{Layout, RepoPath};
use super::probe::asked::{self, ARGS, Form, Status};
use super::probe::operation::operations;
use super::probe::private::{Private, PrivateError};
use super::probe::read::{SMALL_BYTES_MAX, read_if_present};
use super::probe::regenerable::Regenerable;
use super::probe::status::Kind;
use super::probe::submodule::{self, Asker};
use super::probe::tips::{self, Stashed, Tips};
use super::probe::walk::{Walk, walk, walk_git_dir};
use super::repository::Repository;
use super::{Inner, Workspace, WorkspaceError, blocking, fetch};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::gate::{Probe, ProbeOutcome, ProbeResult, Verdict, judge};
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::repo_target::RepoTarget;
use crate::process::inside::{Inside, processes_inside};

/// What the caller knows that the disk does not say.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether the payload says that the request was merged.
    pub merged: Option<bool>,
    /// Commits that authenticated payloads named as heads: they, and what they
    /// were made on, are on the forge whether its branches say so or not.
    pub heads: Vec<String>,
    /// The remote, to be asked before a commit counts as being nowhere else.
    pub target: RepoTarget,
    /// Processes of the caller's own, which do not count.
    pub own_processes: Vec<u32>,
}

/// What a look at a checkout gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// What each of the ten probes ran and saw, in order.
    pub results: Vec<ProbeResult>,
    /// What follows.
    pub verdict: Verdict,
    /// Hash over everything that was seen: it is another one after any change.
    pub fingerprint: String,
}

impl Workspace {
    /// Looks whether a checkout may go. Changes nothing.
    ///
    /// # Errors
    ///
    /// Only when it could not be looked at all: cancelled, or the root is not
    /// there. What cannot be answered about the checkout is in the results.
    pub async fn inspect(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        cancel: &CancellationToken,
    ) -> Result<Inspection, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        if let Err(why) = require_names(record) {
            return Ok(Results::not_ours(why).inspection(String::new()));
        }
        let repository = inner.repository_of(record)?;
        let _one = inner.slug_lock(&repository, &record.slug, cancel).await?;
        let gate = Gate::new(&inner, &repository, facts)?;
        Ok(gate.look(record, Form::Normal, cancel).await?.inspection)
    }
}

/// One look's surroundings.
pub(super) struct Gate<'a> {
    pub inner: &'a Arc<Inner>,
    pub repository: &'a Arc<Repository>,
    pub facts: &'a Facts,
    pub regenerable: Regenerable,
}

/// What a look leaves for a removal to go on with.
pub(super) struct Sight {
    pub inspection: Inspection,
    /// None if an answer is missing; there is a reason to keep it then.
    pub seen: Option<Seen>,
}

/// What was there, to be compared with what is there later.
pub(super) struct Seen {
    pub located: Located,
    pub private: Arc<Private>,
    pub status: Status,
    pub tree: Walk,
    pub admin: Walk,
    /// When the looking began, in nanoseconds since 1970.
    pub began_ns: i128,
}

impl<'a> Gate<'a> {
    pub fn new(
        inner: &'a Arc<Inner>,
        repository: &'a Arc<Repository>,
        facts: &'a Facts,
    ) -> Result<Self, WorkspaceError> {
        let regenerable = Regenerable::parse(&inner.options.regenerable)
            .map_err(|error| WorkspaceError::new(FailureCode::BadInput, error.to_string()))?;
        Ok(Self {
            inner,
            repository,
            facts,
            regenerable,
        })
    }

    /// A name for a private directory that nobody has.
    pub fn scratch(&self, slug: &str) -> PathBuf {
        self.repository.scratch_view(slug)
    }

    /// Runs all probes.
    pub async fn look(
        &self,
        record: &CheckoutRecord,
        form: Form,
        cancel: &CancellationToken,
    ) -> Result<Sight, WorkspaceError> {
        let mut results = Results::default();
        let began_ns = i128::from(crate::clock::now_ms()) * 1_000_000;
        let (layout, vault, stored) = (
            self.inner.layout()?.clone(),
            self.repository.vault.clone(),
            record.clone(),
        );
        let located = blocking(move || Ok(identify(&layout, &vault, &stored))).await?;
        let located = match located {
            Ok(located) => {
                results.push(Probe::Identity, RAN_IDENTITY, ProbeOutcome::Clear);
                located
            }
            Err(why) => return Ok(Results::not_ours(why).without_sight()),
        };
        results.add(
            Probe::Locks,
            "read the record's lock",
            locks(&located, record),
        );

        let scratch = self.scratch(&record.slug);
        let (place, strategy) = (located.clone(), record.strategy);
        let made = blocking(move || {
            let private = only_files(&place, strategy)
                .map_err(PrivateError::from)
                .and_then(|()| Private::make(&scratch, &place.common, &place.admin));
            Ok(private.map_err(|error| error.to_string()))
        })
        .await?;
        let own = self.facts.own_processes.clone();
        let place = located.clone();
        let processes = blocking(move || Ok(inside(&[&place.path, &place.admin], &own)));
        let private = match made {
            Ok(private) => private,
            Err(why) => {
                results.add(Probe::Processes, RAN_PROCESSES, processes.await?);
                results.add(
                    Probe::Operations,
                    RAN_OPERATIONS,
                    in_progress(&located.admin),
                );
                results.add(Probe::Files, "read HEAD and the index", Err(why.clone()));
                results.skip_rest(&why);
                return Ok(results.without_sight());
            }
        };

        let submodules = submodule::paths(&private.entries);
        let (walks, asked) = self
            .walk_and_ask(&located, &private, &submodules, form, cancel)
            .await;
        // Only now: our own git worked in the directory until here.
        let processes = processes.await?;
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        results.add(Probe::Processes, RAN_PROCESSES, processes);
        results.add(
            Probe::Operations,
            RAN_OPERATIONS,
            in_progress(&located.admin),
        );
        let command = format!("git status {}", ARGS.join(" "));
        let files = self.classify(&private, &asked, &walks);
        results.add(Probe::Files, &command, files.seen);
        results.add(
            Probe::HiddenFiles,
            "the same, with assume-unchanged and skip-worktree taken away",
            files.hidden,
        );

        let (place, stored, view) = (located.clone(), record.clone(), private);
        let (private, tips, stash) = blocking(move || {
            let tips = tips::tips(&place, &stored, &view);
            let stash = match &tips {
                Ok(tips) => tips::stashed(&place, &stored, &view, tips),
                Err(why) => Err(why.clone()),
            };
            Ok((view, tips, stash))
        })
        .await?;
        let commits = self.commits(&private, &tips, cancel).await?;
        results.add(
            Probe::Commits,
            "compared HEAD, branches and reflogs with what was fetched from the remote",
            commits,
        );
        let asker = Asker {
            git: self.inner.git()?,
            scratch: &self.scratch(&record.slug),
            regenerable: &self.regenerable,
            cancel,
        };
        let inside = asker
            .ask(&located.path, &located.admin, &private.entries)
            .await;
        let _ = std::fs::remove_dir(asker.scratch);
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        results.add(
            Probe::Submodules,
            "asked each submodule through a private git directory",
            inside.map(|found| reasons([(KeepReason::SubmoduleUnlanded, found)])),
        );
        results.add(
            Probe::Nested,
            "walked everything but `.git`",
            nested(&walks, &located, record.strategy),
        );
        let stashed = stash.clone().unwrap_or_default();
        results.add(
            Probe::Stash,
            "read the stash's log",
            stash.map(|found| {
                let shown = found.into_iter().map(|one| one.shown).collect();
                reasons([(KeepReason::StashFromHere, shown)])
            }),
        );

        let fingerprint = fingerprint(
            walks
                .iter()
                .flat_map(|(tree, admin)| [tree.fingerprint, admin.fingerprint]),
            tips.as_ref().ok(),
            &stashed,
        );
        let inspection = results.inspection(fingerprint);
        let seen = match (walks, asked) {
            (Ok((tree, admin)), Ok(status)) => Some(Seen {
                located,
                private: Arc::new(private),
                status,
                tree,
                admin,
                began_ns,
            }),
            _ => None,
        };
        Ok(Sight { inspection, seen })
    }

    /// Walks the files and asks git about them, side by side.
    pub async fn walk_and_ask(
        &self,
        located: &Located,
        private: &Private,
        submodules: &BTreeSet<PathBuf>,
        form: Form,
        cancel: &CancellationToken,
    ) -> (Result<(Walk, Walk), String>, Result<Status, String>) {
        let stop = cancel.child_token();
        let walking = async {
            let (place, submodules) = (located.clone(), submodules.clone());
            let walks = blocking(move || {
                let tree = walk(&place.path, &submodules)?;
                let admin = walk_git_dir(&place.admin)?;
                Ok((tree, admin))
            })
            .await
            .map_err(|error| error.to_string());
            // Git would open a fifo of such a name and wait for ever.
            let waits = walks.as_ref().is_ok_and(|(tree, _)| {
                tree.specials.iter().any(|path| {
                    path.file_name()
                        .is_some_and(|name| name.as_bytes().starts_with(b".git"))
                })
            });
            if waits {
                stop.cancel();
            }
            walks
        };
        let asking = async {
            match self.inner.git() {
                Ok(git) => asked::status(git, private, &located.path, form, &stop).await,
                Err(error) => Err(error.to_string()),
            }
        };
        tokio::join!(walking, asking)
    }

    /// Sorts what git and the walk saw into reasons.
    pub fn classify(
        &self,
        private: &Private,
        asked: &Result<Status, String>,
        walks: &Result<(Walk, Walk), String>,
    ) -> FilesSeen {
        let hidden: BTreeSet<&[u8]> = private
            .entries
            .iter()
            .filter(|entry| entry.is_hidden())
            .map(|entry| entry.path.as_slice())
            .collect();
        let (mut dirty, mut veiled, mut untracked, mut precious, mut failed) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        match asked {
            Ok(status) => {
                for entry in &status.entries {
                    let shown = String::from_utf8_lossy(&entry.path).into_owned();
                    match entry.kind {
                        Kind::Changed if hidden.contains(entry.path.as_slice()) => {
                            veiled.push(shown);
                        }
                        Kind::Changed => dirty.push(shown),
                        Kind::Untracked => untracked.push(shown),
                        Kind::Ignored if self.regenerable.matches(&entry.path) => {}
                        Kind::Ignored => precious.push(shown),
                    }
                }
            }
            Err(why) => failed.push(why.clone()),
        }
        match walks {
            Ok((tree, admin)) => {
                for path in &tree.specials {
                    if !self.regenerable.matches(path.as_os_str().as_bytes()) {
                        untracked.push(shown(path));
                    }
                }
                for (path, why) in &tree.unreadable {
                    failed.push(format!("{}: {why}", path.display()));
                }
                for (path, why) in &admin.unreadable {
                    failed.push(format!("git's record: {}: {why}", path.display()));
                }
                for path in &admin.specials {
                    failed.push(format!("git's record: {} is no file", path.display()));
                }
            }
            Err(why) => failed.push(why.clone()),
        }
        FilesSeen {
            hidden: match asked {
                Ok(_) => Ok(reasons([(KeepReason::HiddenDirty, veiled)])),
                Err(why) => Err(why.clone()),
            },
            seen: Ok(reasons([
                (KeepReason::TrackedDirty, dirty),
                (KeepReason::Untracked, untracked),
                (KeepReason::IgnoredPrecious, precious),
                (KeepReason::ProbeFailed, failed),
            ])),
        }
    }

    /// Which commits are nowhere else; the remote is asked once if some seem
    /// to be, because agents push without telling.
    pub async fn commits(
        &self,
        private: &Private,
        tips: &Result<Tips, String>,
        cancel: &CancellationToken,
    ) -> Result<Answer, WorkspaceError> {
        let tips = match tips {
            Ok(tips) => tips.commits.clone(),
            Err(why) => return Ok(Err(why.clone())),
        };
        let mut answer = self.at_risk(private.ctl(), tips.clone()).await?;
        if !matches!(&answer, Ok(commits) if commits.is_empty()) {
            let refreshed =
                fetch::refresh_heads(self.inner, self.repository, &self.facts.target, cancel).await;
            match refreshed {
                Ok(()) => answer = self.at_risk(private.ctl(), tips).await?,
                Err(WorkspaceError::Cancelled) => return Err(WorkspaceError::Cancelled),
                // It stays with what is known.
                Err(error) => {
                    tracing::info!(%error, "Could not ask the remote which commits it has.");
                }
            }
        }
        Ok(answer.map(|commits| {
            let (held, loose): (Vec<_>, Vec<_>) =
                commits.into_iter().partition(|commit| commit.on_branch);
            let shown = |all: Vec<AtRisk>| all.into_iter().map(|one| one.shown).collect();
            reasons([
                (KeepReason::UnlandedCommits, shown(held)),
                (KeepReason::DetachedUnreferenced, shown(loose)),
            ])
        }))
    }

    /// Which of some tips and their ancestors are nowhere else.
    pub async fn at_risk(
        &self,
        ctl: PathBuf,
        tips: BTreeSet<String>,
    ) -> Result<Result<Vec<AtRisk>, String>, WorkspaceError> {
        let (vault, heads) = (self.repository.vault.clone(), self.facts.heads.clone());
        blocking(move || {
            let landed = Landed {
                ctl: &ctl,
                vault: &vault,
                heads: &heads,
            };
            Ok(landed.at_risk(&tips).map_err(|error| error.to_string()))
        })
        .await
    }
}

const RAN_IDENTITY: &str =
    "compared the stored record, the journal, the directory and git's record";
const RAN_PROCESSES: &str =
    "compared working directory, root, executable, open and mapped files of each process";
const RAN_OPERATIONS: &str =
    "looked for what a merge, rebase, cherry-pick, revert, bisect or am leaves";

/// Reasons, or why the question was not answered.
pub(super) type Answer = Result<Vec<Kept>, String>;

/// What the two probes of files saw.
pub(super) struct FilesSeen {
    pub seen: Answer,
    pub hidden: Answer,
}

/// Refuses a record whose names could lead anywhere else than where checkouts
/// of that repository are; paths are only built from names that pass.
pub(super) fn require_names(record: &CheckoutRecord) -> Result<(), String> {
    let target = RepoTarget {
        host: record.host.clone(),
        owner: record.owner.clone(),
        repo: record.repo.clone(),
        clone_url: String::new(),
    };
    RepoPath::of(&target).map_err(|error| error.to_string())?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 200
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-~_".contains(&b))
    };
    if !is_name(&record.slug) || !is_name(&record.nonce) {
        return Err(format!("`{}` is no name of a checkout", record.slug));
    }
    match (record.strategy, &record.record) {
        (Strategy::Worktree, Some(name)) if is_name(name) => Ok(()),
        (Strategy::Clone, None) => Ok(()),
        _ => Err("its record has no acceptable name".to_owned()),
    }
}

/// Proves that the record, the journal and the disk agree. Blocking.
pub(super) fn identify(
    layout: &Layout,
    vault: &Path,
    record: &CheckoutRecord,
) -> Result<Located, String> {
    let journal = Journal::read(vault, &record.slug).map_err(|error| error.to_string())?;
    let Some(journal) = journal else {
        return Err("the workspace does not know it".to_owned());
    };
    if !is_same(&journal.record, record) {
        return Err("the workspace remembers another checkout under its name".to_owned());
    }
    match journal.phase {
        Phase::Ready => {}
        Phase::Preparing { .. } => return Err("it is half-made".to_owned()),
        Phase::Moving { .. } => return Err("it is being moved to another commit".to_owned()),
        Phase::Removing { .. } => return Err("it is on its way out".to_owned()),
    }
    if record.root != layout.root() {
        return Err(format!("it belongs below `{}`", record.root.display()));
    }
    identity::locate(layout, record).map_err(|error| error.to_string())
}

/// Whether two records are of one checkout. The commit changes when it is
/// moved; inode and nonce were given to it once.
pub(super) fn is_same(one: &CheckoutRecord, other: &CheckoutRecord) -> bool {
    let told = |record: &CheckoutRecord| {
        (
            record.slug.clone(),
            (
                record.host.clone(),
                record.owner.clone(),
                record.repo.clone(),
            ),
            record.strategy,
            (
                record.root.clone(),
                record.path.clone(),
                record.record.clone(),
            ),
            (record.nonce.clone(), record.inode),
            (
                record.base.clone(),
                record.branch.clone(),
                record.branch_created,
            ),
        )
    };
    told(one) == told(other)
}

/// A private directory shows refs through links; a fifo among them would hold
/// whoever reads them.
fn only_files(located: &Located, strategy: Strategy) -> std::io::Result<()> {
    let mut places = vec![located.common.join("refs")];
    if strategy == Strategy::Worktree {
        places.push(located.admin.join("refs"));
    }
    for place in places {
        let seen = walk(&place, &BTreeSet::new())?;
        if let Some(special) = seen.specials.first() {
            return Err(std::io::Error::other(format!(
                "{} is no file",
                place.join(special).display()
            )));
        }
    }
    Ok(())
}

/// Returns the hash over what a look saw. It does not depend on how closely git
/// was made to look: what status says follows from the files, the index, HEAD
/// and the refs.
pub(super) fn fingerprint(
    walks: impl Iterator<Item = [u8; 32]>,
    tips: Option<&Tips>,
    stash: &[Stashed],
) -> String {
    let mut hash = Sha256::new();
    for walk in walks {
        hash.update(walk);
    }
    for tip in tips.iter().flat_map(|tips| &tips.commits) {
        hash.update(tip);
    }
    for (branch, tip) in tips.iter().flat_map(|tips| &tips.branch_tips) {
        hash.update(branch);
        hash.update(tip);
    }
    for one in stash {
        hash.update([1]);
        hash.update(&one.commit);
    }
    hex::encode(hash.finalize())
}

fn locks(located: &Located, record: &CheckoutRecord) -> Answer {
    if record.strategy == Strategy::Clone {
        return Ok(Vec::new());
    }
    let text = read_if_present(&located.admin.join("locked"), SMALL_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    let text = text.as_deref().map(String::from_utf8_lossy);
    Ok(match text {
        // Taken away by somebody; what it protected from is git's own prune.
        None => Vec::new(),
        Some(text) if text.contains(&format!("(nonce {})", record.nonce)) => Vec::new(),
        Some(text) => reasons([(KeepReason::Locked, vec![text.trim_end().to_owned()])]),
    })
}

pub(super) fn inside(directories: &[&Path], own: &[u32]) -> Answer {
    let found = processes_inside(directories, own).map_err(|error| error.to_string())?;
    let shown = found.iter().map(Inside::to_string).collect();
    Ok(reasons([(KeepReason::InUse, shown)]))
}

fn in_progress(admin: &Path) -> Answer {
    let found = operations(admin).map_err(|error| error.to_string())?;
    let shown = found.into_iter().map(str::to_owned).collect();
    Ok(reasons([(KeepReason::OpInProgress, shown)]))
}

fn nested(walks: &Result<(Walk, Walk), String>, located: &Located, strategy: Strategy) -> Answer {
    let (tree, admin) = walks.as_ref().map_err(Clone::clone)?;
    let mut found: Vec<String> = tree.nested.iter().map(|path| shown(path)).collect();
    found.extend(
        admin
            .nested
            .iter()
            .filter(|path| !path.starts_with("modules"))
            .map(|path| format!("git's record: {}", path.display())),
    );
    if strategy == Strategy::Clone {
        for name in super::layout::names_in(&located.common.join("worktrees")) {
            found.push(format!("worktree {name} of this clone"));
        }
    }
    Ok(reasons([(KeepReason::NestedRepo, found)]))
}

fn shown(path: &Path) -> String {
    OsStr::to_string_lossy(path.as_os_str()).into_owned()
}

/// Returns the reasons for which there is something to show.
pub(super) fn reasons<const N: usize>(all: [(KeepReason, Vec<String>); N]) -> Vec<Kept> {
    all.into_iter()
        .filter(|(_, shown)| !shown.is_empty())
        .map(|(code, shown)| Kept::new(code, shown))
        .collect()
}

/// The results of one look, in the making.
#[derive(Default)]
struct Results(Vec<ProbeResult>);

impl Results {
    fn push(&mut self, probe: Probe, ran: &str, outcome: ProbeOutcome) {
        self.0.push(ProbeResult {
            probe,
            ran: ran.to_owned(),
            outcome,
        });
    }

    fn not_ours(why: String) -> Self {
        let mut results = Self::default();
        let found = reasons([(KeepReason::IdentityMismatch, vec![why])]);
        results.push(Probe::Identity, RAN_IDENTITY, ProbeOutcome::Found(found));
        results.skip_rest("it is not known to be ours");
        results
    }

    fn add(&mut self, probe: Probe, ran: &str, answer: Answer) {
        let outcome = match answer {
            Ok(reasons) if reasons.is_empty() => ProbeOutcome::Clear,
            Ok(reasons) => ProbeOutcome::Found(reasons),
            Err(why) => ProbeOutcome::Failed(why),
        };
        self.push(probe, ran, outcome);
    }

    fn skip_rest(&mut self, why: &str) {
        for probe in Probe::ALL {
            if !self.0.iter().any(|result| result.probe == probe) {
                self.push(probe, "", ProbeOutcome::Skipped(why.to_owned()));
            }
        }
    }

    fn inspection(mut self, fingerprint: String) -> Inspection {
        self.0.sort_by_key(|result| result.probe);
        Inspection {
            verdict: judge(&self.0),
            results: self.0,
            fingerprint,
        }
    }

    fn without_sight(self) -> Sight {
        Sight {
            inspection: self.inspection(String::new()),
            seen: None,
        }
    }
}
