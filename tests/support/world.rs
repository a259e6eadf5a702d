//! A world around a real daemon: origins that git fetches from, a configuration,
//! the built binary, signed deliveries, and the event log to wait for.
//!
//! Nothing waits for a time to pass: [`World::wait`] waits for what is asked,
//! and fails with everything that was told instead.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::payloads::{Payload, Reply, deliver};

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The secret that deliveries are signed with.
pub const SECRET: &str = "correct horse battery staple";

/// The host that payloads name; its URL template is configured.
pub const HOST: &str = "forge.example";

/// A directory with origins, a configuration, and at most one daemon.
pub struct World {
    dir: tempfile::TempDir,
    root: PathBuf,
    yaml: String,
    daemon: Option<Daemon>,
    delivered: u64,
}

struct Daemon {
    child: Child,
    webhooks: SocketAddr,
    stderr: PathBuf,
}

/// What a configuration may say beside what every test needs. Each is YAML, put
/// below its key; `workspace` and `routing` with two and four spaces.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Lines below `routing.workspace`.
    pub workspace: String,
    /// Lines below `routing`.
    pub routing: String,
    /// Lines below `sessions`.
    pub sessions: String,
    /// Whole sections.
    pub other: String,
    /// The URL template of [`HOST`]; none for the origins as files.
    pub clone_url: Option<String>,
    /// Without a workspace root.
    pub no_root: bool,
    /// The workspace root, if it is to be another than [`World::checkouts`].
    pub root: Option<String>,
}

impl World {
    /// Makes a world; no daemon runs yet.
    pub fn new(config: &Config) -> Self {
        Self::new_in(&std::env::temp_dir(), config)
    }

    /// Makes a world in a directory below `parent`.
    pub fn new_in(parent: &Path, config: &Config) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("innkeeper-world-")
            .tempdir_in(parent)
            .expect("a temporary directory");
        // git names its directories by their real paths.
        let root = dir.path().canonicalize().expect("a real path");
        for name in ["origin", "home", "bin"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory");
        }
        let mut world = Self {
            dir,
            root,
            yaml: String::new(),
            daemon: None,
            delivered: 0,
        };
        world.configure(config);
        world
    }

    /// Writes the configuration; a running daemon sees that it changed.
    pub fn configure(&mut self, config: &Config) {
        let clone_url = config.clone_url.clone().unwrap_or_else(|| {
            format!("file://{}/{{owner}}/{{repo}}.git", self.origins().display())
        });
        let root = match &config.root {
            _ if config.no_root => "\"\"",
            Some(root) => root,
            None => "checkouts",
        };
        self.yaml = format!(
            "state: {{ root: state }}
webhooks: {{ github: {{ port: 0, secretEnv: TEST_WEBHOOK_SECRET }} }}
routing:
  workspace:
    root: {root}
    defaultHost: {HOST}
    hosts: {{ {HOST}: {{ cloneUrl: '{clone_url}' }} }}
    minFreeBytes: 0
    minFreeInodes: 0
{}
{}
sessions:
  killGraceSeconds: 2
{}
{}
",
            indented(&config.workspace, 4),
            indented(&config.routing, 2),
            indented(&config.sessions, 2),
            config.other
        );
        // Renamed into place: a daemon must not read half of it.
        let written = self.root.join("innkeeper.yaml.new");
        std::fs::write(&written, &self.yaml).expect("the configuration is written");
        std::fs::rename(&written, self.config_file()).expect("it takes the old one's place");
    }

    /// Leaves everything on the disk for somebody to look at; returns where.
    pub fn leave(mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.root.clone()
    }

    /// Returns the world's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where origins are: `<owner>/<repo>.git`.
    pub fn origins(&self) -> PathBuf {
        self.root.join("origin")
    }

    /// Returns the workspace root.
    pub fn checkouts(&self) -> PathBuf {
        self.root.join("checkouts")
    }

    /// Returns the state directory.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Returns the configuration's file.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("innkeeper.yaml")
    }

    /// Returns a command of the built binary, with nothing of the tester's own
    /// configuration in its environment. `bin` in the world comes first on PATH.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_innkeeper"));
        let mut path = self.root.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.root.join("home"))
            .env("TMPDIR", &self.root)
            .env("TEST_WEBHOOK_SECRET", SECRET)
            .env("INNKEEPER_CONFIG", self.config_file())
            .env("GIT_AUTHOR_NAME", "Nobody")
            .current_dir(&self.root);
        command
    }

    /// Runs a command of the binary to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command()
            .args(arguments)
            .output()
            .expect("the binary runs")
    }

    /// Runs a command that has to succeed; returns what it printed.
    pub fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[S]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Starts a daemon and waits until it is ready.
    pub fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// Starts a daemon whose command is changed first.
    pub fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        if let Err(told) = self.try_start_with(change) {
            panic!("the daemon did not start: {told}");
        }
    }

    /// Starts a daemon whose command is changed first and that may end before it
    /// is ready; returns how it ended then, and what it said.
    pub fn try_start_with(&mut self, change: impl FnOnce(&mut Command)) -> Result<(), String> {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let stderr = self.root.join("daemon.log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&stderr)
            .expect("the daemon's log");
        let mut command = self.command();
        command
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        change(&mut command);
        let mut child = command.spawn().expect("the daemon starts");
        let stdout = child.stdout.take().expect("piped");
        let mut webhooks = None;
        let mut ready = false;
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("text");
            if let Some(address) = line.strip_prefix("webhooks  http://") {
                let address = address.split('/').next().expect("an address");
                webhooks = Some(address.parse().expect("an address"));
            }
            if line == "ready" {
                ready = true;
                break;
            }
        }
        if !ready {
            let status = child.wait().expect("it ended");
            return Err(format!("{status}\n{}", read(&stderr)));
        }
        let webhooks = webhooks.expect("it listens for webhooks");
        self.daemon = Some(Daemon {
            child,
            webhooks,
            stderr,
        });
        Ok(())
    }

    /// Returns whether a daemon was started that was not seen to end.
    pub fn is_running(&self) -> bool {
        self.daemon.is_some()
    }

    /// Returns how the daemon that was started has ended, if it has; it is
    /// forgotten then.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        let daemon = self.daemon.as_mut()?;
        let status = daemon.child.try_wait().expect("it can be asked")?;
        self.daemon = None;
        Some(status)
    }

    /// Returns whether the daemon that was started has ended by itself; it is
    /// forgotten then.
    pub fn has_died(&mut self) -> bool {
        self.ended().is_some()
    }

    /// Delivers a payload under this id to a daemon that may die of it.
    pub fn try_deliver_as(&self, id: &str, payload: &Payload) -> std::io::Result<Reply> {
        deliver(
            self.webhooks(),
            "/webhooks/github",
            SECRET.as_bytes(),
            id,
            payload,
        )
    }

    /// Returns the daemon's process id.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon runs").child.id()
    }

    /// Returns the address of the webhook listener.
    pub fn webhooks(&self) -> SocketAddr {
        self.daemon.as_ref().expect("a daemon runs").webhooks
    }

    /// Kills the daemon as `kill -9` does.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        daemon.child.kill().expect("it can be killed");
        daemon.child.wait().expect("it ended");
    }

    /// Stops the daemon with SIGTERM and waits for its end.
    pub fn stop(&mut self) {
        signal(self.pid(), "TERM");
        self.stop_signalled();
    }

    /// Waits for the end of a daemon that was sent SIGTERM.
    pub fn stop_signalled(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        let status = wait_for_end(&mut daemon.child);
        assert!(
            status.success(),
            "the daemon ended with {status}\n{}",
            read(&daemon.stderr)
        );
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Delivers a payload under a new id, signed; returns the id and the answer.
    pub fn deliver(&mut self, payload: &Payload) -> (String, Reply) {
        self.delivered += 1;
        let id = format!("d-{}-{}", self.delivered, std::process::id());
        let reply = self.deliver_as(&id, payload);
        (id, reply)
    }

    /// Delivers a payload that has to be accepted; returns the delivery's id.
    pub fn accept(&mut self, payload: &Payload) -> String {
        let (id, reply) = self.deliver(payload);
        assert_eq!(
            reply.status,
            202,
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        id
    }

    /// Delivers a payload under this id.
    pub fn deliver_as(&self, id: &str, payload: &Payload) -> Reply {
        self.try_deliver_as(id, payload)
            .expect("the listener answers")
    }

    /// Returns everything that the event log tells, oldest first. Rotated files
    /// are not read.
    pub fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state().join("events.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect()
    }

    /// Waits until `found` says something about the events, and returns it.
    pub fn wait<T>(&self, what: &str, mut found: impl FnMut(&[Value]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events();
            if let Some(found) = found(&events) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; the log says:\n{}\nthe daemon says:\n{}",
                events
                    .iter()
                    .map(Value::to_string)
                    .collect::<Vec<_>>()
                    .join("\n"),
                read(&self.root.join("daemon.log"))
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Waits for an event of this name about this delivery, and returns it.
    pub fn wait_delivery(&self, event: &str, delivery: &str) -> Value {
        self.wait(&format!("{event} of {delivery}"), |events| {
            events
                .iter()
                .find(|told| told["event"] == event && told["delivery"] == delivery)
                .cloned()
        })
    }

    /// Waits until a delivery is done, dropped or parked; returns that event.
    pub fn wait_over(&self, delivery: &str) -> Value {
        self.wait(&format!("the end of {delivery}"), |events| {
            events
                .iter()
                .find(|told| {
                    told["delivery"] == delivery
                        && matches!(
                            told["event"].as_str(),
                            Some("delivery.done" | "delivery.dropped" | "delivery.parked")
                        )
                })
                .cloned()
        })
    }

    /// Waits for the `count`th event of this name (from 1), and returns it.
    pub fn wait_event(&self, event: &str, count: usize) -> Value {
        self.wait(&format!("{event} number {count}"), |events| {
            events
                .iter()
                .filter(|told| told["event"] == event)
                .nth(count - 1)
                .cloned()
        })
    }

    /// Returns the events of this name.
    pub fn events_named(&self, event: &str) -> Vec<Value> {
        self.events()
            .into_iter()
            .filter(|told| told["event"] == event)
            .collect()
    }

    /// Waits until a condition outside the log holds.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "waited in vain until {what}\nthe daemon says:\n{}",
                read(&self.root.join("daemon.log"))
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Checks that the log's sequence rises by one, from one.
    pub fn assert_sequence_is_whole(&self) {
        for (index, event) in self.events().iter().enumerate() {
            assert_eq!(event["seq"], index + 1, "a gap in the log at {event}");
        }
    }

    /// Returns an origin, made if it is not there: a bare repository with one
    /// commit on `main`.
    pub fn origin(&self, owner: &str, repo: &str) -> Origin {
        let bare = self.origins().join(owner).join(format!("{repo}.git"));
        let work = self.root.join("somebody").join(owner).join(repo);
        let origin = Origin {
            bare,
            work,
            home: self.root.join("home"),
        };
        if !origin.bare.exists() {
            std::fs::create_dir_all(&origin.bare).expect("a directory");
            std::fs::create_dir_all(&origin.work).expect("a directory");
            origin.bare_git(&["init", "--quiet", "--bare", "-b", "main"]);
            origin.git(&["init", "--quiet", "-b", "main"]);
            origin.write("README", "hello\n");
            origin.write(".gitignore", "/target/\n*.log\n.env\n");
            origin.commit("first");
            origin.push("main");
        }
        origin
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
        // Sessions outlive their daemon by design; these have no one left.
        end_everything_below(self.dir.path());
    }
}

/// A repository that plays the remote, and somebody's clone of it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The bare repository.
    pub bare: PathBuf,
    /// Somebody's clone.
    pub work: PathBuf,
    home: PathBuf,
}

impl Origin {
    /// Writes a file into somebody's clone.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.work.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    /// Commits everything in somebody's clone; returns the commit.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Pushes a branch.
    pub fn push(&self, branch: &str) {
        let bare = self.bare.display().to_string();
        self.git(&["push", "--quiet", "--force", &bare, branch]);
    }

    /// Makes a branch with a commit of its own from `main`, pushes it, and makes
    /// it the head of pull request `number`; returns the commit.
    pub fn pull_request(&self, number: u64, branch: &str) -> String {
        self.git(&["checkout", "--quiet", "-B", branch, "main"]);
        self.write(
            &format!("pr-{number}.txt"),
            &format!("of pull request {number}\n"),
        );
        let head = self.commit(&format!("pull request {number}"));
        self.push(branch);
        self.set_pull(number, &head);
        head
    }

    /// Makes a pull request whose head is on no branch of this repository.
    pub fn fork_pull_request(&self, number: u64) -> String {
        self.git(&["checkout", "--quiet", "--detach", "main"]);
        self.write(&format!("fork-{number}.txt"), "of a fork\n");
        let head = self.commit(&format!("of a fork, pull request {number}"));
        let bare = self.bare.display().to_string();
        self.git(&[
            "push",
            "--quiet",
            "--force",
            &bare,
            &format!("HEAD:refs/pull/{number}/head"),
        ]);
        head
    }

    /// Adds a commit to a branch that is a pull request's head; returns it.
    pub fn push_more(&self, number: u64, branch: &str) -> String {
        self.git(&["checkout", "--quiet", branch]);
        self.write(&format!("more-{number}.txt"), "more\n");
        let head = self.commit("more");
        self.push(branch);
        self.set_pull(number, &head);
        head
    }

    /// Makes `refs/pull/<number>/head` a commit that the origin has.
    pub fn set_pull(&self, number: u64, commit: &str) {
        self.bare_git(&["update-ref", &format!("refs/pull/{number}/head"), commit]);
    }

    /// Runs git in somebody's clone; returns what it printed.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.home, &self.work, arguments)
    }

    /// Runs git in the bare repository.
    pub fn bare_git(&self, arguments: &[&str]) -> String {
        git(&self.home, &self.bare, arguments)
    }

    /// Runs git in another directory, as an agent would.
    pub fn git_in(&self, dir: &Path, arguments: &[&str]) -> String {
        git(&self.home, dir, arguments)
    }
}

/// Runs git with nothing of the tester's configuration; it has to succeed.
pub fn git(home: &Path, dir: &Path, arguments: &[&str]) -> String {
    let output = git_output(home, dir, arguments);
    assert!(
        output.status.success(),
        "git {arguments:?} in {}: {}",
        dir.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs git with nothing of the tester's configuration.
pub fn git_output(home: &Path, dir: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Somebody")
        .env("GIT_AUTHOR_EMAIL", "somebody@example.invalid")
        .env("GIT_COMMITTER_NAME", "Somebody")
        .env("GIT_COMMITTER_EMAIL", "somebody@example.invalid")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .current_dir(dir)
        .output()
        .expect("git runs")
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines()
        .map(|line| format!("{indent}{line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn read(path: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let _partly = file.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success(), "process {pid} is gone");
}

fn wait_for_end(child: &mut Child) -> std::process::ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        assert!(Instant::now() < deadline, "the daemon does not end");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Kills what works below a directory, or was started with it in its arguments.
fn end_everything_below(dir: &Path) {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return;
    };
    for process in processes.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let works_inside =
            std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        let names_it = read(&process.path().join("cmdline")).contains(&*dir.to_string_lossy());
        if (works_inside || names_it) && pid != std::process::id() {
            let _gone = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .output();
        }
    }
}
