//! The steps, in order, each with the events that tell of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::origin::{BRANCH, Origin};
use super::snapshot::Snapshot;
use super::webhook::{self, HOST};
use crate::cli::{Failure, Format, Output};
use crate::config::{self, Environment};
use crate::daemon::{Daemon, Options};
use crate::dispatch::request::Answer;
use crate::domain::log_event::Source;
use crate::event_log::{EventFilter, EventReader};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the session does first: it edits and commits.
const START: &str = "echo 'goodbye, world' >> greeting.txt
git commit --quiet --all -m 'Say goodbye too'
echo \"committed in $PWD on $INNKEEPER_BRANCH\"";

/// What it does when the pull request moved on: it begins something.
const RESUME: &str = "echo 'remember the milk' > notes.txt
echo \"told of $INNKEEPER_EVENT $INNKEEPER_ACTION\"";

/// Runs every step.
pub(super) async fn tell(root: &Path) -> Result<(), Failure> {
    let mut out = Output::new(Format { json: false });
    let (origin, head) = Origin::make(root).await.map_err(Failure::failed)?;
    let secret = uuid::Uuid::now_v7().simple().to_string();
    let daemon = start(root, &origin, &secret)
        .await
        .map_err(Failure::failed)?;
    let mut story = Story {
        daemon: &daemon,
        origin: &origin,
        secret,
        told: None,
        sent: 0,
    };
    story.told = Some(
        EventReader::open(&root.join("state/events.jsonl"), EventFilter::default())
            .map_err(Failure::failed)?,
    );
    let outcome = story.steps(&mut out, root, &head).await;
    daemon
        .stop("the demonstration is over", CancellationToken::new())
        .await;
    match outcome {
        Ok(()) => print_log(&mut out, root),
        Err(error) if error.is::<NobodyReads>() => {
            Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into())
        }
        Err(error) => Err(Failure::failed(error)),
    }?;
    out.flush()
}

/// Starts a daemon with a configuration of its own on a free port.
async fn start(root: &Path, origin: &Origin, secret: &str) -> anyhow::Result<Daemon> {
    let file = root.join("innkeeper.yaml");
    let yaml = format!(
        "state: {{ root: state }}
webhooks: {{ github: {{ port: 0, secretEnv: INNKEEPER_DEMO_SECRET }} }}
routing:
  workspace:
    root: checkouts
    defaultHost: {HOST}
    hosts: {{ {HOST}: {{ cloneUrl: 'file://{}/origin/{{owner}}/{{repo}}.git' }} }}
    minFreeBytes: 0
    minFreeInodes: 0
  rules:
    - {{ name: every pull request, when: {{ event: pull_request }}, then: start }}
sessions:
  default: demo
  profiles:
    demo:
      start: [sh, -eu, -c, {}]
      resume: [sh, -eu, -c, {}]
      env:
        GIT_AUTHOR_NAME: Agent
        GIT_AUTHOR_EMAIL: agent@example.invalid
        GIT_COMMITTER_NAME: Agent
        GIT_COMMITTER_EMAIL: agent@example.invalid
",
        root.display(),
        serde_json::to_string(START)?,
        serde_json::to_string(RESUME)?,
    );
    std::fs::write(&file, yaml).context("the demonstration's configuration")?;
    let mut variables = origin.environment();
    variables.retain(|(name, _)| !name.to_string_lossy().starts_with("GIT_"));
    variables.push(("INNKEEPER_DEMO_SECRET".into(), secret.into()));
    let environment = Environment::new(variables, root);
    let loaded = config::load(&file, &environment)?;
    Ok(Daemon::start(Options::new(loaded.config, environment)).await?)
}

struct Story<'a> {
    daemon: &'a Daemon,
    origin: &'a Origin,
    secret: String,
    told: Option<EventReader>,
    sent: u32,
}

impl Story<'_> {
    async fn steps(&mut self, out: &mut Output, root: &Path, head: &str) -> anyhow::Result<()> {
        step(
            out,
            "A pull request is opened: a checkout at its head, a session in it.",
        )?;
        self.send(out, &webhook::pull_request("opened", head, None, false))
            .await?;
        let prepared = self.wait(out, "workspace.prepared").await?;
        let checkout = PathBuf::from(text(&prepared, "checkout")?);
        ensure!(
            text(&prepared, "commit")? == head,
            "the checkout is not at the head"
        );
        ensure!(
            checkout.starts_with(root.join("checkouts")),
            "the checkout is outside the workspace"
        );
        self.wait(out, "session.started").await?;
        let exited = self.wait(out, "session.exited").await?;
        ensure!(
            exited["status"]["code"] == 0,
            "the session failed: {exited}"
        );
        let committed = self.origin.git(&checkout, &["rev-parse", "HEAD"]).await?;
        ensure!(committed != head, "the session did not commit");
        let branch = self
            .origin
            .git(&checkout, &["symbolic-ref", "--short", "HEAD"])
            .await?;
        ensure!(branch == BRANCH, "the checkout is on `{branch}`");

        step(
            out,
            "Somebody pushes to it. The checkout has work in it, so it is left alone; the session is told.",
        )?;
        let pushed = self.origin.push_more().await?;
        let synchronize = webhook::pull_request("synchronize", &pushed, Some(head), false);
        self.send(out, &synchronize).await?;
        let updated = self.wait(out, "workspace.updated").await?;
        ensure!(
            updated["moved"] == false,
            "a checkout with work in it was moved"
        );
        let now = self.origin.git(&checkout, &["rev-parse", "HEAD"]).await?;
        ensure!(now == committed, "the session's commit is gone");
        self.wait(out, "session.resumed").await?;
        let exited = self.wait(out, "session.exited").await?;
        ensure!(
            exited["status"]["code"] == 0,
            "the session failed: {exited}"
        );

        step(
            out,
            "It is closed while a file and a commit exist only there: they are archived, then the checkout goes.",
        )?;
        let before = Snapshot::take(self.origin, &checkout).await?;
        self.send(out, &webhook::pull_request("closed", &pushed, None, false))
            .await?;
        self.wait(out, "archive.created").await?;
        let cleaned = self.wait(out, "workspace.cleaned").await?;
        let archive = text(&cleaned, "archive")?.to_owned();
        ensure!(!checkout.exists(), "the checkout is still there");

        step(
            out,
            "The archive is restored: the checkout is what it was, file by file.",
        )?;
        line(out, &format!("   innkeeper archive restore {archive}"))?;
        self.restore(&archive).await?;
        let restored = self.wait(out, "archive.restored").await?;
        ensure!(
            text(&restored, "checkout")? == checkout.display().to_string(),
            "it was restored somewhere else: {restored}"
        );
        let after = Snapshot::take(self.origin, &checkout).await?;
        ensure!(
            after == before,
            "it is not what was removed: {before:?} {after:?}"
        );
        ensure!(checkout.join("notes.txt").exists(), "the new file is gone");
        ensure!(
            self.origin.git(&checkout, &["rev-parse", "HEAD"]).await? == committed,
            "the session's commit is gone"
        );
        let files = after.files();
        line(
            out,
            &format!("   compared: {files} files, index, HEAD, branch, status, stash: the same"),
        )?;

        step(
            out,
            "Its work is committed and pushed with plain git; the next close has nothing to archive.",
        )?;
        for arguments in [
            &["add", "--all"][..],
            &["commit", "--quiet", "-m", "Keep the notes"],
            &["pull", "--quiet", "--rebase"],
            &["push", "--quiet"],
        ] {
            self.origin.git(&checkout, arguments).await?;
        }
        self.origin.follow().await?;
        let landed = self.origin.tip(BRANCH).await?;
        ensure!(
            landed == self.origin.git(&checkout, &["rev-parse", "HEAD"]).await?,
            "a plain push did not update the pull request"
        );
        self.send(out, &webhook::pull_request("closed", &landed, None, true))
            .await?;
        let cleaned = self.wait(out, "workspace.cleaned").await?;
        ensure!(
            cleaned["archive"].is_null(),
            "something was archived although everything was pushed: {cleaned}"
        );
        ensure!(!checkout.exists(), "the checkout is still there");
        self.wait(out, "delivery.done").await?;
        Ok(())
    }

    /// Restores an archive as the command does.
    async fn restore(&self, archive: &str) -> anyhow::Result<()> {
        let answer = self
            .daemon
            .control()
            .restore(archive, None, Source::Cli)
            .await?;
        match answer {
            Answer::Restored { differs, .. } if differs.is_empty() => Ok(()),
            other => bail!("the archive was not restored whole: {other:?}"),
        }
    }

    async fn send(&mut self, out: &mut Output, payload: &Value) -> anyhow::Result<()> {
        self.sent += 1;
        let to = self
            .daemon
            .webhooks()
            .context("the webhook listener is off")?;
        let delivery = format!("demo-{}", self.sent);
        let (status, answer) =
            webhook::post(to, self.secret.as_bytes(), &delivery, payload).await?;
        ensure!(
            status.as_u16() == 202,
            "the webhook was answered with {status}: {answer}"
        );
        line(
            out,
            &format!("   POST /webhooks/github -> {} {answer}", status.as_u16()),
        )
    }

    /// Waits for an event, printing those on the way.
    async fn wait(&mut self, out: &mut Output, wanted: &str) -> anyhow::Result<Value> {
        let told = self.told.as_mut().context("the event log is not open")?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let next = tokio::time::timeout_at(deadline, told.follow_line()).await;
            let Ok(next) = next else {
                bail!("`{wanted}` did not come within {} s", PATIENCE.as_secs());
            };
            let event: Value = serde_json::from_str(&next?)?;
            let name = event["event"].as_str().unwrap_or_default().to_owned();
            line(out, &format!("   {}", summary(&event)))?;
            if name == wanted {
                return Ok(event);
            }
            let is_failure = matches!(
                name.as_str(),
                "delivery.parked" | "session.spawn_failed" | "session.lost"
            );
            ensure!(!is_failure, "instead of `{wanted}` came {event}");
        }
    }
}

fn step(out: &mut Output, what: &str) -> anyhow::Result<()> {
    out.heading(what).map_err(broken)
}

fn line(out: &mut Output, text: &str) -> anyhow::Result<()> {
    out.line(text).and_then(|()| out.flush()).map_err(broken)
}

/// What is printed cannot be written; nothing else can fail there.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads what is printed")]
struct NobodyReads;

fn broken(_failure: Failure) -> anyhow::Error {
    NobodyReads.into()
}

fn text<'e>(event: &'e Value, field: &str) -> anyhow::Result<&'e str> {
    event[field]
        .as_str()
        .with_context(|| format!("`{field}` is missing in {event}"))
}

/// Returns an event in short: its name and the fields that say most.
fn summary(event: &Value) -> String {
    let name = event["event"].as_str().unwrap_or_default();
    let mut text = name.to_owned();
    for field in [
        "reason", "checkout", "branch", "moved", "session", "status", "reasons", "archive",
    ] {
        match &event[field] {
            Value::Null => {}
            Value::String(value) => text.push_str(&format!(" {field}={value}")),
            Value::Array(reasons) => {
                let told: Vec<String> = reasons
                    .iter()
                    .map(|reason| {
                        format!(
                            "{}({})",
                            reason["code"].as_str().unwrap_or("?"),
                            reason["count"]
                        )
                    })
                    .collect();
                text.push_str(&format!(" {field}={}", told.join(",")));
            }
            other => text.push_str(&format!(" {field}={other}")),
        }
    }
    text
}

/// Prints the whole log, as `innkeeper events` would.
fn print_log(out: &mut Output, root: &Path) -> Result<(), Failure> {
    out.heading("The event log:")?;
    let path = root.join("state/events.jsonl");
    let mut log = EventReader::open(&path, EventFilter::default()).map_err(Failure::failed)?;
    while let Some(line) = log.next_line().map_err(Failure::failed)? {
        out.line(&line)?;
    }
    out.heading("Every step went as it says.")
}
