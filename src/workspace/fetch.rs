//! Getting commits from the remote into the vault, once for all who wait.
//!
//! Whoever misses something leaves an [`Ask`]. One worker for each repository
//! takes all asks that have come, and runs one fetch for them under the
//! repository's lock; who comes while it runs waits for the next, because a
//! fetch that began before an event need not hold what the event tells of. If
//! the one fetch fails because the remote does not offer one of the things,
//! each is tried alone, so that one missing head fails only who wanted it.
//!
//! A commit is looked for in this order: by its id, at the pull request's ref,
//! on its branch. Fetches are by URL, fully qualified on both sides, forced,
//! and only ever write below `refs/innkeeper/`. Nothing is pruned but what
//! cannot exist beside a branch that does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use git2::Oid;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::prepare::told_by_disk;
use super::repository::Repository;
use super::vault::{self, HEADS, PULLS, SEEN};
use super::{Inner, WorkspaceError, blocking, locks};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::git::ctl;
use crate::process::CrashPoint;

/// How long the worker waits for company before it starts, again as long as
/// some comes: events of one push arrive together, and a fetch takes far longer
/// than this.
const GATHER: Duration = Duration::from_millis(10);
/// How often it waits again.
const GATHER_TIMES_MAX: usize = 15;

/// Where the remote is and how it may be reached.
#[derive(Clone, Debug)]
pub struct Remote {
    url: String,
    protocols: Vec<String>,
}

impl Remote {
    /// Returns the remote of a target.
    ///
    /// # Errors
    ///
    /// `bad_input` if its URL could be taken for an option.
    pub fn of(inner: &Inner, target: &RepoTarget) -> Result<Self, WorkspaceError> {
        let url = target.clone_url.clone();
        if url.is_empty() || url.starts_with('-') || url.chars().any(char::is_control) {
            return Err(WorkspaceError::new(
                FailureCode::BadInput,
                format!("{url:?} is no acceptable URL"),
            ));
        }
        let mut protocols = vec!["https".to_owned(), "ssh".to_owned()];
        protocols.extend(
            inner
                .options
                .protocols
                .get(&target.host)
                .into_iter()
                .flatten()
                .cloned(),
        );
        Ok(Self { url, protocols })
    }

    /// Returns the URL that git gets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the transports that git may use for it.
    pub fn protocols(&self) -> &[String] {
        &self.protocols
    }
}

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A commit, and where it may be found.
    Commit {
        /// The commit.
        commit: Oid,
        /// Number of a pull request whose head it is.
        pull: Option<u64>,
        /// A branch of this very repository whose tip it is.
        branch: Option<String>,
        /// Its base, which is fetched along.
        base: Option<String>,
        /// The event says that its ref is gone.
        gone: bool,
    },
    /// The present head of a pull request.
    Pull {
        /// Its number.
        number: u64,
        /// A branch of this very repository whose tip it is.
        branch: Option<String>,
        /// The event says that its ref is gone.
        gone: bool,
    },
    /// The present tip of a branch.
    Branch(String),
    /// The present tip of the default branch.
    Default,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The commit, which is in the vault and pinned.
    pub commit: Oid,
    /// The default branch, if that was wanted and has a name.
    pub default_branch: Option<String>,
    /// Whether the remote had to be asked for objects.
    pub fetched: bool,
    /// Whether another caller's fetch brought it.
    pub coalesced: bool,
}

struct Ask {
    want: Want,
    remote: Remote,
    cancel: CancellationToken,
    reply: oneshot::Sender<Result<Got, WorkspaceError>>,
}

/// The asks of one repository.
#[derive(Default)]
pub struct Fetcher {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Ask>,
    is_worked_on: bool,
}

/// Gets what is wanted: from the vault if it is there, else from the remote.
pub async fn obtain(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    target: &RepoTarget,
    want: Want,
    cancel: &CancellationToken,
) -> Result<Got, WorkspaceError> {
    if let Some(got) = present(repository, &want).await? {
        return Ok(got);
    }
    let (reply, answer) = oneshot::channel();
    let ask = Ask {
        want,
        remote: Remote::of(inner, target)?,
        cancel: cancel.clone(),
        reply,
    };
    let starts = {
        let mut queue = repository.fetcher.lock();
        queue.waiting.push(ask);
        !std::mem::replace(&mut queue.is_worked_on, true)
    };
    if starts {
        tokio::spawn(work(Arc::clone(inner), Arc::clone(repository)));
    }
    tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| {
            Err(WorkspaceError::new(FailureCode::Internal, "the fetch ended without an answer"))
        }),
        () = cancel.cancelled() => Err(WorkspaceError::Cancelled),
    }
}

impl Fetcher {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody has come for a moment.
    async fn gather(&self) {
        let mut before = 0;
        for _ in 0..GATHER_TIMES_MAX {
            tokio::time::sleep(GATHER).await;
            let waiting = self.lock().waiting.len();
            if waiting == before {
                return;
            }
            // One alone is not worth waiting for twice.
            if before == 0 && waiting == 1 {
                return;
            }
            before = waiting;
        }
    }

    /// Takes all that wait; with nobody there the worker's place is given up.
    fn take(&self) -> Vec<Ask> {
        let mut queue = self.lock();
        queue.waiting.retain(|ask| !ask.cancel.is_cancelled());
        if queue.waiting.is_empty() {
            queue.is_worked_on = false;
        }
        std::mem::take(&mut queue.waiting)
    }
}

/// Gives the worker's place up, also when it panics.
struct Place<'a>(&'a Fetcher, bool);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.1 {
            let mut queue = self.0.lock();
            queue.is_worked_on = false;
            queue.waiting.clear();
        }
    }
}

async fn work(inner: Arc<Inner>, repository: Arc<Repository>) {
    let mut place = Place(&repository.fetcher, false);
    loop {
        // Who comes while the lock is waited for is taken along.
        let writer = repository
            .write_lock(&inner, &CancellationToken::new())
            .await;
        repository.fetcher.gather().await;
        let asks = repository.fetcher.take();
        if asks.is_empty() {
            place.1 = true;
            return;
        }
        if let Err(error) = &writer {
            for ask in asks {
                let _ = ask.reply.send(Err(error.clone()));
            }
            continue;
        }
        let cancel = CancellationToken::new();
        let everybody_left = {
            let tokens: Vec<_> = asks.iter().map(|ask| ask.cancel.clone()).collect();
            async move {
                for token in tokens {
                    token.cancelled().await;
                }
            }
        };
        let round = Round {
            inner: &inner,
            repository: &repository,
            cancel: &cancel,
        };
        let mut running = std::pin::pin!(round.run(asks));
        tokio::select! {
            () = &mut running => {}
            () = everybody_left => {
                cancel.cancel();
                running.await;
            }
        }
        drop(writer);
    }
}

/// Looks into the vault, without any lock.
async fn present(repository: &Arc<Repository>, want: &Want) -> Result<Option<Got>, WorkspaceError> {
    let Want::Commit { commit, pull, .. } = want else {
        return Ok(None);
    };
    let (commit, pull) = (*commit, *pull);
    let path = repository.vault.clone();
    let here = blocking(move || {
        let vault = vault::open(&path)?;
        let here = vault::has_commit(&vault, commit);
        if here {
            remember(&vault, commit, pull)?;
        }
        Ok(here)
    })
    .await?;
    Ok(here.then_some(Got {
        commit,
        default_branch: None,
        fetched: false,
        coalesced: false,
    }))
}

/// Pins a commit, and notes that a pull request had a head.
fn remember(
    vault: &git2::Repository,
    commit: Oid,
    pull: Option<u64>,
) -> Result<(), WorkspaceError> {
    vault::pin(vault, commit)?;
    if let Some(number) = pull {
        let name = format!("{PULLS}{number}");
        if vault::tip(vault, &name)?.is_none() {
            // Lost to another writer of the same ref: then it is noted as well.
            let _ = vault.reference(&name, commit, false, "");
        }
    }
    Ok(())
}

/// One turn of the worker, under the repository's lock.
struct Round<'a> {
    inner: &'a Arc<Inner>,
    repository: &'a Arc<Repository>,
    cancel: &'a CancellationToken,
}

/// A ref of the remote and where it goes in the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refspec {
    source: String,
    target: String,
}

impl Refspec {
    fn commit(commit: Oid) -> Self {
        Self {
            source: commit.to_string(),
            target: format!("{SEEN}{commit}"),
        }
    }

    fn pull(number: u64) -> Self {
        Self {
            source: format!("refs/pull/{number}/head"),
            target: format!("{PULLS}{number}"),
        }
    }

    fn branch(branch: &str) -> Self {
        Self {
            source: format!("refs/heads/{branch}"),
            target: format!("{HEADS}{branch}"),
        }
    }
}

impl Round<'_> {
    async fn run(&self, asks: Vec<Ask>) {
        let remote = asks[0].remote.clone();
        let default = if asks.iter().any(|ask| ask.want == Want::Default) {
            Some(self.remote_head(&remote).await)
        } else {
            None
        };
        // What has come by now needs no fetch, and what failed has its answer.
        let mut leads = true;
        let mut missing: Vec<(Ask, Vec<Refspec>, Option<Head>)> = Vec::new();
        for ask in asks {
            match self.plan(&ask.want, default.as_ref()).await {
                Ok(Plan::Here(got)) => {
                    let _ = ask.reply.send(Ok(got));
                }
                Ok(Plan::Fetch(refspecs, head)) => missing.push((ask, refspecs, head)),
                Err(error) => {
                    let _ = ask.reply.send(Err(error));
                }
            }
        }
        if missing.is_empty() {
            return;
        }
        let mut all: Vec<Refspec> = Vec::new();
        for refspec in missing.iter().flat_map(|(_, refspecs, _)| refspecs) {
            if !all.contains(refspec) {
                all.push(refspec.clone());
            }
        }
        let together = self.fetch(&remote, &all).await;
        for (ask, _, head) in missing {
            let outcome = match &together {
                Ok(()) => self.answer(&ask.want, head.as_ref(), None).await,
                // One of the things is not offered; or somebody pinned one of
                // them at the very moment git wanted to.
                Err(error)
                    if matches!(
                        error.code(),
                        FailureCode::RefNotYet | FailureCode::LockTimeout
                    ) =>
                {
                    self.alone(&ask, head.as_ref()).await
                }
                Err(error) => Err(error.clone()),
            };
            let outcome = outcome.map(|got| Got {
                fetched: leads,
                coalesced: !leads,
                ..got
            });
            leads &= outcome.is_err();
            let _ = ask.reply.send(outcome);
        }
    }

    /// Says what an ask needs.
    async fn plan(
        &self,
        want: &Want,
        default: Option<&Result<Head, WorkspaceError>>,
    ) -> Result<Plan, WorkspaceError> {
        match want {
            Want::Commit { commit, base, .. } => {
                if let Some(got) = present(self.repository, want).await? {
                    return Ok(Plan::Here(Got {
                        coalesced: true,
                        ..got
                    }));
                }
                let mut refspecs = vec![Refspec::commit(*commit)];
                if let Some(base) = base
                    && self.knows_head(base).await?
                {
                    refspecs.push(Refspec::branch(base));
                }
                Ok(Plan::Fetch(refspecs, None))
            }
            Want::Pull { number, .. } => Ok(Plan::Fetch(vec![Refspec::pull(*number)], None)),
            Want::Branch(branch) => Ok(Plan::Fetch(vec![Refspec::branch(branch)], None)),
            Want::Default => {
                let head = match default {
                    Some(Ok(head)) => head.clone(),
                    Some(Err(error)) => return Err(error.clone()),
                    None => return Err(unborn(&self.repository.names.rel().display().to_string())),
                };
                let (path, commit) = (self.repository.vault.clone(), head.commit);
                let here = blocking(move || {
                    let vault = vault::open(&path)?;
                    let here = vault::has_commit(&vault, commit);
                    if here {
                        vault::pin(&vault, commit)?;
                    }
                    Ok(here)
                })
                .await?;
                if here {
                    self.note_default(&head).await?;
                    return Ok(Plan::Here(Got {
                        commit: head.commit,
                        default_branch: head.branch,
                        fetched: false,
                        coalesced: false,
                    }));
                }
                let refspec = match &head.branch {
                    Some(branch) => Refspec::branch(branch),
                    None => Refspec::commit(head.commit),
                };
                Ok(Plan::Fetch(vec![refspec], Some(head)))
            }
        }
    }

    /// After a fetch that succeeded: is it what was wanted?
    async fn answer(
        &self,
        want: &Want,
        head: Option<&Head>,
        place: Option<&Refspec>,
    ) -> Result<Got, WorkspaceError> {
        let place = place.map(|place| place.target.clone());
        let path = self.repository.vault.clone();
        let wanted = want.clone();
        let of_head = head.map(|head| head.commit);
        let commit = blocking(move || {
            let vault = vault::open(&path)?;
            let (commit, pull) = match &wanted {
                Want::Commit { commit, pull, .. } => {
                    (vault::has_commit(&vault, *commit).then_some(*commit), *pull)
                }
                Want::Pull { number, .. } => {
                    let name = place.unwrap_or_else(|| format!("{PULLS}{number}"));
                    (vault::tip(&vault, &name)?, Some(*number))
                }
                Want::Branch(branch) => (vault::tip(&vault, &format!("{HEADS}{branch}"))?, None),
                // The branch may have moved between asking and fetching; what
                // was fetched is the newer.
                Want::Default => (of_head, None),
            };
            if let Some(commit) = commit
                && vault::has_commit(&vault, commit)
            {
                remember(&vault, commit, pull)?;
                return Ok(Some(commit));
            }
            Ok(None)
        })
        .await?;
        if let Some(head) = head {
            self.note_default(head).await?;
        }
        let Some(commit) = commit else {
            return Err(WorkspaceError::new(
                FailureCode::CommitMismatch,
                format!("the remote gave something else than {}", described(want)),
            ));
        };
        Ok(Got {
            commit,
            default_branch: head.and_then(|head| head.branch.clone()),
            fetched: true,
            coalesced: false,
        })
    }

    /// Tries one ask by itself, in every place where it may be.
    async fn alone(&self, ask: &Ask, head: Option<&Head>) -> Result<Got, WorkspaceError> {
        let mut places = Vec::new();
        match &ask.want {
            Want::Commit {
                commit,
                pull,
                branch,
                ..
            } => {
                places.push(Refspec::commit(*commit));
                places.extend(pull.map(Refspec::pull));
                places.extend(branch.as_deref().map(Refspec::branch));
            }
            Want::Pull { number, branch, .. } => {
                places.push(Refspec::pull(*number));
                places.extend(branch.as_deref().map(Refspec::branch));
            }
            Want::Branch(branch) => places.push(Refspec::branch(branch)),
            Want::Default => {
                places.extend(
                    head.and_then(|head| head.branch.as_deref())
                        .map(Refspec::branch),
                );
            }
        }
        if let Some(got) = present(self.repository, &ask.want).await? {
            return Ok(got);
        }
        let seen_before = self.saw_head(&ask.want).await?;
        let mut mismatch = None;
        // Twice: a ref that was moved between two fetches is looked at again.
        for _ in 0..2 {
            let mut offered = false;
            for place in &places {
                match self.fetch(&ask.remote, std::slice::from_ref(place)).await {
                    Ok(()) => match self.answer(&ask.want, head, Some(place)).await {
                        Ok(got) => return Ok(got),
                        Err(error) if error.code() == FailureCode::CommitMismatch => {
                            offered = true;
                            mismatch = Some(error);
                        }
                        Err(error) => return Err(error),
                    },
                    Err(error) if error.code() == FailureCode::RefNotYet => {}
                    Err(error) => return Err(error),
                }
            }
            if !offered {
                break;
            }
        }
        if let Some(error) = mismatch {
            return Err(error);
        }
        let (code, message) = match &ask.want {
            Want::Commit { gone, .. } | Want::Pull { gone, .. } if *gone || seen_before => (
                FailureCode::RefGone,
                format!(
                    "the remote does not offer {} any more",
                    described(&ask.want)
                ),
            ),
            Want::Commit { pull: None, .. } | Want::Branch(_) | Want::Default => (
                FailureCode::BaseUnresolvable,
                format!("the remote does not offer {}", described(&ask.want)),
            ),
            Want::Commit { .. } | Want::Pull { .. } => (
                FailureCode::RefNotYet,
                format!("the remote does not offer {} yet", described(&ask.want)),
            ),
        };
        Err(WorkspaceError::new(code, message))
    }

    /// Runs one fetch into the vault.
    async fn fetch(&self, remote: &Remote, refspecs: &[Refspec]) -> Result<(), WorkspaceError> {
        let (path, wanted) = (self.repository.vault.clone(), refspecs.to_vec());
        blocking(move || {
            let vault = vault::open(&path)?;
            for refspec in &wanted {
                if let Some(branch) = refspec.target.strip_prefix(HEADS) {
                    vault::make_room(&vault, branch)?;
                } else if refspec.target.starts_with(PULLS)
                    && let Some(old) = vault::tip(&vault, &refspec.target)?
                {
                    vault::pin(&vault, old)?;
                }
            }
            Ok(())
        })
        .await?;
        let vault = &self.repository.vault;
        let mut fetched = run_fetch(self.inner, vault, remote, refspecs, self.cancel).await;
        if fetched
            .as_ref()
            .is_err_and(|error| error.code() == FailureCode::LockTimeout)
            && self.sweep_locks().await?
        {
            fetched = run_fetch(self.inner, vault, remote, refspecs, self.cancel).await;
        }
        fetched?;
        self.show_agents(refspecs).await
    }

    /// Removes locks of the vault that nobody holds; returns whether there were
    /// any. The round has the writer's lock.
    async fn sweep_locks(&self) -> Result<bool, WorkspaceError> {
        let (inner, vault) = (Arc::clone(self.inner), self.repository.vault.clone());
        blocking(move || {
            let removed = locks::sweep_vault(&vault, inner.opened_at()?);
            let any = !removed.is_empty();
            inner.tell_removed(removed);
            Ok(any)
        })
        .await
    }

    /// Shows fetched branches to the agents as `origin/<branch>`.
    async fn show_agents(&self, refspecs: &[Refspec]) -> Result<(), WorkspaceError> {
        let branches: Vec<String> = refspecs
            .iter()
            .filter_map(|refspec| refspec.target.strip_prefix(HEADS).map(str::to_owned))
            .collect();
        if branches.is_empty() || !self.repository.shared.join(super::shared::MARKER).exists() {
            return Ok(());
        }
        let repository = Arc::clone(self.repository);
        blocking(move || {
            let vault = vault::open(&repository.vault)?;
            for branch in branches {
                if let Some(tip) = vault::tip(&vault, &format!("{HEADS}{branch}"))? {
                    show_branch(&repository, &branch, tip);
                }
            }
            Ok(())
        })
        .await
    }

    async fn remote_head(&self, remote: &Remote) -> Result<Head, WorkspaceError> {
        let head = ls_remote_head(self.inner, &self.repository.vault, remote, self.cancel).await?;
        head.ok_or_else(|| unborn(&remote.url))
    }

    /// Takes over a default branch that has another name now.
    async fn follow_default(&self, head: Option<Head>) -> Result<(), WorkspaceError> {
        let Some(head) = head else {
            return Ok(());
        };
        let path = self.repository.vault.clone();
        let known = blocking(move || Ok(vault::default_branch(&path))).await?;
        if known == head.branch {
            return Ok(());
        }
        self.note_default(&head).await
    }

    async fn note_default(&self, head: &Head) -> Result<(), WorkspaceError> {
        let Some(branch) = head.branch.clone() else {
            return Ok(());
        };
        let repository = Arc::clone(self.repository);
        let commit = head.commit;
        blocking(move || {
            let known = vault::default_branch(&repository.vault);
            vault::set_default_branch(&repository.vault, &branch)?;
            if repository.shared.join(super::shared::MARKER).exists() {
                show_branch(&repository, &branch, commit);
                if known.as_deref() != Some(&branch) {
                    show_default(&repository, &branch)?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn knows_head(&self, branch: &str) -> Result<bool, WorkspaceError> {
        let (path, name) = (self.repository.vault.clone(), format!("{HEADS}{branch}"));
        blocking(move || Ok(vault::tip(&vault::open(&path)?, &name)?.is_some())).await
    }

    /// Whether the pull request had a head that was fetched before.
    async fn saw_head(&self, want: &Want) -> Result<bool, WorkspaceError> {
        let number = match want {
            Want::Commit {
                pull: Some(number), ..
            }
            | Want::Pull { number, .. } => *number,
            Want::Commit { pull: None, .. } | Want::Branch(_) | Want::Default => return Ok(false),
        };
        let path = self.repository.vault.clone();
        blocking(move || {
            let vault = vault::open(&path)?;
            Ok(vault::tip(&vault, &format!("{PULLS}{number}"))?.is_some())
        })
        .await
    }
}

enum Plan {
    Here(Got),
    Fetch(Vec<Refspec>, Option<Head>),
}

/// The remote's `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The branch it names.
    pub branch: Option<String>,
    /// The commit.
    pub commit: Oid,
}

fn described(want: &Want) -> String {
    match want {
        Want::Commit {
            commit,
            pull: Some(number),
            ..
        } => format!("commit {commit} of pull request #{number}"),
        Want::Commit { commit, .. } => format!("commit {commit}"),
        Want::Pull { number, .. } => format!("the head of pull request #{number}"),
        Want::Branch(branch) => format!("branch `{branch}`"),
        Want::Default => "its default branch".into(),
    }
}

fn unborn(what: &str) -> WorkspaceError {
    WorkspaceError::new(
        FailureCode::UnbornHead,
        format!("the repository `{what}` has no commit yet"),
    )
}

/// Sets a tracking branch in the shared clone. The agents' own fetches do the
/// same: losing to one of them, or to what an agent put there, is no failure.
pub(super) fn show_branch(repository: &Repository, branch: &str, commit: Oid) {
    let set = || -> Result<(), WorkspaceError> {
        ctl::ensure(&repository.ctl, &repository.shared)?;
        let view = vault::open(&repository.ctl)?;
        let name = format!("refs/remotes/origin/{branch}");
        if vault::tip(&view, &name)? == Some(commit) {
            return Ok(());
        }
        for hindrance in vault::in_the_way(&view, "refs/remotes/origin/", branch)? {
            view.find_reference(&hindrance)?.delete()?;
        }
        view.reference(&name, commit, true, "")?;
        Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(branch, %error, "A tracking branch was not set.");
    }
}

fn show_default(repository: &Repository, branch: &str) -> Result<(), WorkspaceError> {
    for (file, text) in [
        ("HEAD", format!("ref: refs/heads/{branch}\n")),
        (
            "refs/remotes/origin/HEAD",
            format!("ref: refs/remotes/origin/{branch}\n"),
        ),
    ] {
        crate::files::atomic_write(&repository.shared.join(file), text.as_bytes(), false)?;
    }
    Ok(())
}

async fn run_fetch(
    inner: &Inner,
    vault: &std::path::Path,
    remote: &Remote,
    refspecs: &[Refspec],
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let git = inner.git()?;
    let mut command = git
        .command("fetch")
        .git_dir(vault)
        .protocols(&remote.protocols)
        .args([
            "-q",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
            "--refmap=",
            "--",
            &remote.url,
        ]);
    for refspec in refspecs {
        assert!(
            refspec.target.starts_with("refs/innkeeper/"),
            "a fetch must only write refs of ours, not {}",
            refspec.target
        );
        command = command.arg(format!("+{}:{}", refspec.source, refspec.target));
    }
    let fetched = command
        .run(cancel)
        .await
        .map(drop)
        .map_err(|error| told_by_disk(error.into(), vault));
    CrashPoint::FetchDone.pass();
    if fetched.is_err() {
        let vault = vault.to_owned();
        let _ = blocking(move || {
            vault::sweep_temporary(&vault);
            Ok(())
        })
        .await;
    }
    fetched
}

/// Fetches one thing into a vault, if the remote offers it.
pub(super) async fn fetch_one(
    inner: &Inner,
    vault: &std::path::Path,
    remote: &Remote,
    source: &str,
    place: &str,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let refspec = Refspec {
        source: source.to_owned(),
        target: place.to_owned(),
    };
    run_fetch(inner, vault, remote, &[refspec], cancel).await
}

/// Asks the remote what its `HEAD` is; none if it has none.
async fn ls_remote_head(
    inner: &Inner,
    vault: &std::path::Path,
    remote: &Remote,
    cancel: &CancellationToken,
) -> Result<Option<Head>, WorkspaceError> {
    let output = inner
        .git()?
        .command("ls-remote")
        .git_dir(vault)
        .protocols(&remote.protocols)
        .args(["--symref", "--", &remote.url, "HEAD"])
        .run(cancel)
        .await?;
    Ok(head_in(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the remote's `HEAD` from what `ls-remote --symref` printed.
fn head_in(text: &str) -> Option<Head> {
    let (mut branch, mut commit) = (None, None);
    for line in text.lines() {
        let Some((value, "HEAD")) = line.split_once('\t') else {
            continue;
        };
        match value.strip_prefix("ref: ") {
            Some(name) => branch = name.strip_prefix("refs/heads/").map(str::to_owned),
            None => commit = Oid::from_str(value).ok(),
        }
    }
    commit.map(|commit| Head { branch, commit })
}

/// Fetches every branch into a new vault, and returns the default branch.
///
/// # Errors
///
/// `unborn_head` if there is no branch at all.
pub(super) async fn clone_heads(
    inner: &Inner,
    vault: &std::path::Path,
    remote: &Remote,
    cancel: &CancellationToken,
) -> Result<Option<String>, WorkspaceError> {
    let head = ls_remote_head(inner, vault, remote, cancel).await?;
    let all = Refspec {
        source: "refs/heads/*".into(),
        target: format!("{HEADS}*"),
    };
    run_fetch(inner, vault, remote, &[all], cancel).await?;
    let path = vault.to_owned();
    let empty = blocking(move || Ok(vault::heads(&vault::open(&path)?)?.is_empty())).await?;
    if empty && head.is_none() {
        return Err(unborn(&remote.url));
    }
    Ok(head.and_then(|head| head.branch))
}

/// Asks the remote for all of its branches: pins what would be lost, drops what
/// is gone, and fetches. This is what proves that a commit is on the remote.
pub(super) async fn refresh_heads(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    target: &RepoTarget,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let remote = Remote::of(inner, target)?;
    let _writer = repository.write_lock(inner, cancel).await?;
    let output = inner
        .git()?
        .command("ls-remote")
        .git_dir(&repository.vault)
        .protocols(&remote.protocols)
        .args(["--symref", "--", &remote.url, "HEAD", "refs/heads/*"])
        .run(cancel)
        .await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let head = head_in(&text);
    let path = repository.vault.clone();
    let changed = blocking(move || {
        let vault = vault::open(&path)?;
        let mut there = std::collections::HashMap::new();
        for line in text.lines() {
            if let Some((oid, name)) = line.split_once('\t')
                && let (Ok(oid), Some(branch)) =
                    (Oid::from_str(oid), name.strip_prefix("refs/heads/"))
            {
                there.insert(branch.to_owned(), oid);
            }
        }
        for (branch, old) in vault::heads(&vault)? {
            match there.get(&branch) {
                Some(new) if *new == old => {
                    there.remove(&branch);
                }
                Some(_) => vault::pin(&vault, old)?,
                None => {
                    vault::pin(&vault, old)?;
                    vault
                        .find_reference(&format!("{HEADS}{branch}"))?
                        .delete()?;
                }
            }
        }
        Ok(there.into_keys().collect::<Vec<_>>())
    })
    .await?;
    let round = Round {
        inner,
        repository,
        cancel,
    };
    if changed.is_empty() {
        return round.follow_default(head).await;
    }
    // By name while they fit on a command line; all of them if not.
    if changed.len() <= 200 {
        let refspecs: Vec<Refspec> = changed
            .iter()
            .map(|branch| Refspec::branch(branch))
            .collect();
        round.fetch(&remote, &refspecs).await?;
    } else {
        let all = Refspec {
            source: "refs/heads/*".into(),
            target: format!("{HEADS}*"),
        };
        run_fetch(inner, &repository.vault, &remote, &[all], cancel).await?;
    }
    round.follow_default(head).await
}

/// Sets a tracking branch that is not there yet, so that a checkout on a new
/// branch has something to be compared with.
pub(super) fn show_branch_if_absent(repository: &Repository, branch: &str, commit: Oid) {
    let name = format!("refs/remotes/origin/{branch}");
    let absent = ctl::ensure(&repository.ctl, &repository.shared).is_ok()
        && vault::open(&repository.ctl)
            .and_then(|view| vault::tip(&view, &name))
            .is_ok_and(|tip| tip.is_none());
    if absent {
        show_branch(repository, branch, commit);
    }
}
