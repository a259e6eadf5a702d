//! A world with a transport, a strategy and a session that tells what it got.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::http_git::{HttpGit, Options};
use crate::support::payloads::{Payload, Repo};
use crate::support::world::{Config, HOST, Origin, World, git, git_output};

/// How git reaches the origins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// As files, under a host that is configured so.
    #[default]
    File,
    /// `git http-backend` behind HTTP on this machine.
    Http,
}

/// Starts every pull request that is opened, reopened or pushed to.
pub const STARTS_PULL_REQUESTS: &str = "\
rules:
  - name: pull requests
    when: { event: pull_request, action: [opened, reopened, ready_for_review, synchronize] }
    then: start";

/// A profile whose command is [`AGENT`], started and resumed.
pub const WITH_AGENT: &str = "\
default: agent
profiles:
  agent: { start: [agent, start, \"{event}\"], resume: [agent, resume, \"{event}\"] }";

/// What the profile's command does: it writes down what it got, does what the
/// test left for it in `~/work`, and ends when there is no `~/hold`.
const AGENT: &str = r#"#!/bin/sh
told="$HOME/runs/$INNKEEPER_DELIVERY"
mkdir -p "$told.part"
env >"$told.part/env"
pwd >"$told.part/pwd"
printf '%s\n' "$@" >"$told.part/arguments"
cp "$INNKEEPER_PROMPT_FILE" "$told.part/prompt"
mv "$told.part" "$told"
if [ -e "$HOME/work" ]; then . "$HOME/work"; fi
while [ -e "$HOME/hold" ]; do sleep 0.02; done
"#;

/// What a run of the session got, by the delivery that came last in it.
#[derive(Debug)]
pub struct Run {
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    pub prompt: String,
}

pub struct Inn {
    world: World,
    http: Option<HttpGit>,
    config: Config,
}

impl Inn {
    /// A world that starts pull requests and has no session profile.
    pub fn preparing(transport: Transport, strategy: &str) -> Self {
        Self::with(
            transport,
            Config {
                routing: STARTS_PULL_REQUESTS.into(),
                workspace: format!("strategy: {strategy}"),
                ..Config::default()
            },
        )
    }

    /// As [`Inn::preparing`]; a checkout stays if something exists only in it.
    pub fn keeping(transport: Transport, strategy: &str) -> Self {
        Self::with(
            transport,
            Config {
                routing: STARTS_PULL_REQUESTS.into(),
                workspace: format!("strategy: {strategy}\nremoval: {{ onDirty: keep }}"),
                ..Config::default()
            },
        )
    }

    /// A world that starts pull requests with a session.
    pub fn with_sessions() -> Self {
        Self::with(
            Transport::File,
            Config {
                routing: STARTS_PULL_REQUESTS.into(),
                sessions: WITH_AGENT.into(),
                ..Config::default()
            },
        )
    }

    /// A world as configured.
    pub fn with(transport: Transport, config: Config) -> Self {
        let world = World::new(&Config::default());
        let http = (transport == Transport::Http).then(|| {
            let options = Options {
                receive_pack: true,
                credentials: None,
            };
            HttpGit::serve_with(&world.origins(), options)
        });
        let agent = world.root().join("bin/agent");
        std::fs::write(&agent, AGENT).expect("the session's command is written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&agent, mode).expect("it can be executed");
        let mut inn = Self {
            world,
            http,
            config: Config::default(),
        };
        inn.reconfigure(config);
        inn
    }

    /// Writes another configuration; the transport stays.
    pub fn reconfigure(&mut self, config: Config) {
        self.config = config;
        if let Some(http) = &self.http {
            self.config.clone_url = Some(http.template());
        }
        self.world.configure(&self.config);
    }

    /// Has the running daemon go by another configuration.
    pub fn reload(&mut self, config: Config) {
        // A reload in which nothing changed is told as well.
        let is_change = |told: &Value| {
            let changed = told["changed"].as_array();
            told["event"] == "config.reloaded" && changed.is_some_and(|keys| !keys.is_empty())
        };
        let count = |events: &[Value]| events.iter().filter(|told| is_change(told)).count();
        let before = count(&self.events());
        self.reconfigure(config);
        self.signal("HUP");
        self.wait("the configuration in force", |events| {
            (count(events) > before).then_some(())
        });
    }

    pub fn http(&self) -> &HttpGit {
        self.http.as_ref().expect("a world with HTTP")
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// Delivers what has an effect; returns the delivery's id when it is done.
    pub fn done(&mut self, payload: &Payload) -> String {
        let id = self.accept(payload);
        self.wait_done(&id);
        id
    }

    pub fn wait_done(&self, id: &str) {
        let over = self.wait_over(id);
        assert_eq!(over["event"], "delivery.done", "{}", self.story());
    }

    /// Delivers what is dropped for this reason.
    pub fn dropped(&mut self, payload: &Payload, reason: &str) -> String {
        let id = self.accept(payload);
        self.wait_dropped(&id, reason);
        id
    }

    pub fn wait_dropped(&self, id: &str, reason: &str) {
        let over = self.wait_over(id);
        assert_eq!(over["event"], "delivery.dropped", "{}", self.story());
        assert_eq!(over["reason"], reason, "{}", self.story());
    }

    /// Delivers what is given up with this code; returns the event.
    pub fn parked(&mut self, payload: &Payload, code: &str) -> Value {
        let id = self.accept(payload);
        let over = self.wait_over(&id);
        assert_eq!(over["event"], "delivery.parked", "{}", self.story());
        assert_eq!(over["code"], code, "{}", self.story());
        over
    }

    /// Delivers what prepares a checkout; returns where, and the event.
    pub fn prepared(&mut self, payload: &Payload) -> (PathBuf, Value) {
        let id = self.done(payload);
        let told = self.told("workspace.prepared", &id);
        (checkout_of(&told), told)
    }

    /// Delivers what takes the checkout away.
    pub fn cleaned(&mut self, payload: &Payload, checkout: &Path) {
        let id = self.done(payload);
        let told = self.told("workspace.cleaned", &id);
        assert_eq!(checkout_of(&told), checkout);
        assert!(!checkout.exists(), "{} is left", checkout.display());
    }

    /// Delivers what leaves the checkout in place; returns the reasons' codes.
    pub fn kept(&mut self, payload: &Payload, checkout: &Path) -> Vec<String> {
        let id = self.done(payload);
        let told = self.told("workspace.kept", &id);
        assert_eq!(checkout_of(&told), checkout);
        assert!(checkout.is_dir(), "{} is gone", checkout.display());
        let reasons = told["reasons"].as_array().expect("reasons").iter();
        reasons
            .map(|reason| reason["code"].as_str().expect("a code").to_owned())
            .collect()
    }

    /// Returns what a delivery that is over told under this name.
    pub fn told(&self, event: &str, delivery: &str) -> Value {
        self.told_maybe(event, delivery)
            .unwrap_or_else(|| panic!("no {event} of {delivery}\n{}", self.story()))
    }

    pub fn told_maybe(&self, event: &str, delivery: &str) -> Option<Value> {
        self.events()
            .into_iter()
            .find(|told| told["event"] == event && told["delivery"] == delivery)
    }

    /// Returns everything that was told, to be shown when a test fails.
    pub fn story(&self) -> String {
        let lines: Vec<String> = self.events().iter().map(Value::to_string).collect();
        lines.join("\n")
    }

    /// Waits for the run that this delivery began, or was the last text of.
    pub fn run_of(&self, delivery: &str) -> Run {
        let told = self.home().join("runs").join(delivery);
        self.until(&format!("a session tells of {delivery}"), || told.is_dir());
        let text = |name: &str| {
            let bytes = std::fs::read(told.join(name)).expect("the session wrote it");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Run {
            arguments: text("arguments").lines().map(str::to_owned).collect(),
            environment: text("env")
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            directory: PathBuf::from(text("pwd").trim_end()),
            prompt: text("prompt"),
        }
    }

    /// Returns how many runs there were.
    pub fn runs(&self) -> usize {
        std::fs::read_dir(self.home().join("runs")).map_or(0, Iterator::count)
    }

    /// Has sessions that start from now on go on until [`Inn::release`].
    pub fn hold(&self) {
        std::fs::write(self.home().join("hold"), "").expect("a file");
    }

    /// Lets every session end.
    pub fn release(&self) {
        std::fs::remove_file(self.home().join("hold")).expect("sessions were held");
    }

    /// Has sessions do this, in the checkout, before they end.
    pub fn have_done(&self, shell: &str) {
        std::fs::write(self.home().join("work"), shell).expect("a file");
    }

    /// Runs git in a checkout as an agent does.
    pub fn git(&self, dir: &Path, arguments: &[&str]) -> String {
        git(&self.home(), dir, arguments)
    }

    pub fn git_output(&self, dir: &Path, arguments: &[&str]) -> Output {
        git_output(&self.home(), dir, arguments)
    }

    pub fn head(&self, checkout: &Path) -> String {
        self.git(checkout, &["rev-parse", "HEAD"])
    }

    /// Returns the branch that a checkout is on; none if detached.
    pub fn branch(&self, checkout: &Path) -> Option<String> {
        let output = self.git_output(checkout, &["symbolic-ref", "-q", "--short", "HEAD"]);
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }

    pub fn has_commit(&self, checkout: &Path, commit: &str) -> bool {
        self.git_output(
            checkout,
            &["cat-file", "-e", &format!("{commit}^{{commit}}")],
        )
        .status
        .success()
    }

    /// Checks that a checkout is at a commit, clean, and on this branch.
    pub fn assert_at(&self, checkout: &Path, commit: &str, branch: Option<&str>) {
        assert_eq!(self.head(checkout), commit, "{}", self.story());
        assert_eq!(self.git(checkout, &["status", "--porcelain"]), "");
        assert_eq!(self.branch(checkout).as_deref(), branch);
    }

    /// Returns what stands below the workspace root where checkouts belong, as
    /// paths relative to it.
    pub fn checkouts_left(&self) -> Vec<PathBuf> {
        let root = self.checkouts();
        let mut found = Vec::new();
        for below in [".worktrees", ".work-items", ".staging"] {
            collect_checkouts(&root.join(below), &root, &mut found);
        }
        found
    }

    /// Stops the daemon, whose log has to be whole.
    pub fn finish(mut self) {
        self.world.stop();
        self.world.assert_sequence_is_whole();
    }
}

impl Deref for Inn {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Inn {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

/// The repository that most tests are about, as payloads describe it.
pub fn widgets() -> Repo {
    Repo::new("acme", "widgets", 7).on(HOST)
}

pub fn checkout_of(told: &Value) -> PathBuf {
    PathBuf::from(told["checkout"].as_str().expect("a path"))
}

/// Merges a branch into the origin's `main` as one commit of its own.
pub fn squash_merge(origin: &Origin, branch: &str) -> String {
    origin.git(&["checkout", "--quiet", "main"]);
    origin.git(&["merge", "--quiet", "--squash", branch]);
    let merged = origin.commit("squashed");
    origin.push("main");
    merged
}

fn collect_checkouts(dir: &Path, root: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join(".git").exists() {
            let below = path.strip_prefix(root).expect("it is below the root");
            found.push(below.to_owned());
        } else if path.is_dir() {
            collect_checkouts(&path, root, found);
        }
    }
}
