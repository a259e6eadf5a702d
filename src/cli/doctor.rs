//! `innkeeper doctor`: one line for each thing that has to be in place, with the
//! remedy for what is not.

use std::io::ErrorKind;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::{Failure, Format, Global, Output};
use crate::config::{self, Config, Environment};
use crate::control::StatusView;
use crate::files;
use crate::git::{Git, GitOptions, operator_config};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Changes nothing. Exit code 1 if anything is a failure; warnings are for \
you to weigh."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    format: Format,
}

/// Free bytes below which the state's disk is a warning.
const STATE_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// How long a call of git may take here.
const GIT_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Failure,
}

/// What was looked at and what was found.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, what: &'static str, found: impl Into<String>) {
        self.add(what, Level::Ok, found.into(), None);
    }

    fn warning(&mut self, what: &'static str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(what, Level::Warning, found.into(), Some(remedy.into()));
    }

    fn failure(&mut self, what: &'static str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(what, Level::Failure, found.into(), Some(remedy.into()));
    }

    fn add(&mut self, what: &'static str, level: Level, found: String, remedy: Option<String>) {
        self.0.push(Finding {
            what,
            level,
            found,
            remedy,
        });
    }
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let env = Environment::of_process();
    let mut findings = Findings::default();
    if let Some(config) = configuration(global, &env, &mut findings) {
        secrets(&config, &env, &mut findings);
        git(&config, &env, &mut findings)?;
        state(&config, &mut findings);
        workspace(&config, &mut findings);
        let daemon = daemon(&config, &mut findings);
        removals(daemon.as_ref(), &mut findings);
        listener(&config, daemon.as_ref(), &mut findings);
        sessions(&config, &env, &mut findings);
    }
    tmux(&env, &mut findings);
    let failed = findings.0.iter().any(|one| one.level == Level::Failure);
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&findings.0)?;
    } else {
        print(&mut output, &findings)?;
    }
    output.flush()?;
    if failed {
        Err(Failure::answered_no())
    } else {
        Ok(())
    }
}

fn print(output: &mut Output, findings: &Findings) -> Result<(), Failure> {
    for one in &findings.0 {
        let word = match one.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failure => "failure",
        };
        output.line(&format!("{word:<8} {:<14} {}", one.what, one.found))?;
        if let Some(remedy) = &one.remedy {
            output.line(&format!("{:<8} {:<14} -> {remedy}", "", ""))?;
        }
    }
    Ok(())
}

fn configuration(global: &Global, env: &Environment, findings: &mut Findings) -> Option<Config> {
    const WHAT: &str = "configuration";
    let Some(path) = config::discover(global.config.as_deref(), env) else {
        findings.failure(
            WHAT,
            "there is none in the known places",
            "write one with `innkeeper init`, or name one with --config",
        );
        return None;
    };
    match config::load(&path, env) {
        Ok(loaded) => {
            findings.ok(WHAT, format!("{} is valid", path.display()));
            for warning in &loaded.warnings {
                findings.warning(WHAT, warning.one_line(), "see `innkeeper config check`");
            }
            Some(loaded.config)
        }
        Err(errors) => {
            findings.failure(
                WHAT,
                errors.one_line(),
                "see `innkeeper config check`, which shows the lines",
            );
            None
        }
    }
}

fn secrets(config: &Config, env: &Environment, findings: &mut Findings) {
    const WHAT: &str = "secrets";
    let webhook = &config.webhooks.github;
    if !webhook.enabled {
        findings.ok(WHAT, "none are needed, the webhook listener is off");
        return;
    }
    match config::resolve_secrets(config, env) {
        Ok((secrets, warnings)) => {
            if secrets.is_empty() {
                findings.warning(
                    WHAT,
                    "there are none: unsigned deliveries are accepted (allowUnsigned)",
                    "only for trying things out; make one with `innkeeper init`",
                );
            } else {
                let from: Vec<_> = secrets.iter().map(config::Secret::origin).collect();
                findings.ok(WHAT, format!("{}: {}", secrets.len(), from.join(", ")));
            }
            for warning in warnings {
                findings.warning(
                    WHAT,
                    warning.message(),
                    warning
                        .remedy()
                        .unwrap_or("set the variable where the daemon runs, or take its name away"),
                );
            }
        }
        Err(errors) => {
            for problem in errors.problems().iter().filter(|one| one.is_error()) {
                findings.failure(
                    WHAT,
                    problem.message(),
                    "set the variable in this environment (the daemon's may differ), or list a file in webhooks.github.secretFiles",
                );
            }
        }
    }
}

fn git(config: &Config, env: &Environment, findings: &mut Findings) -> Result<(), Failure> {
    const WHAT: &str = "git";
    let variables = env.vars().collect::<Vec<_>>();
    let private = tempfile::tempdir().map_err(Failure::failed)?;
    let git = Git::new(GitOptions {
        program: PathBuf::from(&config.routing.workspace.git_binary),
        environment: variables.clone(),
        global_config: private.path().join("gitconfig"),
        mark: private.path().to_owned(),
        timeout: GIT_PATIENCE,
        grace: Duration::from_secs(2),
        low_speed_seconds: GIT_PATIENCE.as_secs(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let cancel = CancellationToken::new();
    match runtime.block_on(git.version(&cancel)) {
        Ok(version) => findings.ok(WHAT, format!("{version} at {}", git.program().display())),
        Err(error) => {
            findings.failure(
                WHAT,
                format!("{:#}", anyhow::Error::from(error)),
                "install git 2.39 or later, or name it in routing.workspace.gitBinary",
            );
            return Ok(());
        }
    }
    let taken = runtime.block_on(operator_config(
        &git,
        &variables,
        &private.path().join("gitconfig"),
        &cancel,
    ));
    match taken {
        Ok(keys) if keys.is_empty() => findings.ok(
            "git settings",
            "nothing is taken from your git configuration (there is nothing about credentials, identity or proxies)",
        ),
        Ok(keys) => findings.ok(
            "git settings",
            format!("taken from your git configuration: {}", keys.join(", ")),
        ),
        Err(error) => findings.failure(
            "git settings",
            format!("{:#}", anyhow::Error::from(error)),
            "see `git config --list --show-origin`",
        ),
    }
    Ok(())
}

fn state(config: &Config, findings: &mut Findings) {
    directory(
        "state",
        &config.state.root,
        "state.root",
        STATE_BYTES_MIN,
        0,
        findings,
    );
}

fn workspace(config: &Config, findings: &mut Findings) {
    let workspace = &config.routing.workspace;
    match &workspace.root {
        Some(root) => directory(
            "checkouts",
            root,
            "routing.workspace.root",
            workspace.min_free_bytes,
            workspace.min_free_inodes,
            findings,
        ),
        None => findings.ok(
            "checkouts",
            format!(
                "off (routing.workspace.root is empty): sessions run in {}",
                config.routing.spawn_workdir.display()
            ),
        ),
    }
}

/// Looks at a directory that the daemon writes to; one that is not there is made
/// by the daemon, if that above it can be written.
fn directory(
    what: &'static str,
    path: &Path,
    key: &str,
    bytes: u64,
    inodes: u64,
    findings: &mut Findings,
) {
    let Some(present) = path.ancestors().find(|path| path.exists()) else {
        findings.failure(
            what,
            format!("`{}` cannot be looked at", path.display()),
            format!("change {key}"),
        );
        return;
    };
    if !present.is_dir() {
        findings.failure(
            what,
            format!("`{}` is not a directory", present.display()),
            format!("move it away, or change {key}"),
        );
        return;
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if let Err(error) = rustix::fs::access(present, access) {
        findings.failure(
            what,
            format!("`{}` cannot be written: {error}", present.display()),
            format!("give the daemon's user the right to, or change {key}"),
        );
        return;
    }
    let space = match files::free_space(present) {
        Ok(space) => space,
        Err(error) => {
            findings.failure(
                what,
                format!(
                    "the disk at `{}` cannot be asked: {error}",
                    present.display()
                ),
                format!("see that it is mounted, or change {key}"),
            );
            return;
        }
    };
    let free = match space.inodes {
        Some(inodes) => format!("{}, {inodes} inodes free", super::output::size(space.bytes)),
        None => format!("{} free", super::output::size(space.bytes)),
    };
    if space.bytes < bytes || space.inodes.is_some_and(|free| free < inodes) {
        findings.warning(
            what,
            format!("`{}`: only {free}", path.display()),
            "make room: nothing new is prepared below the bounds of the configuration",
        );
    } else if present == path {
        findings.ok(what, format!("`{}`: {free}", path.display()));
    } else {
        findings.ok(
            what,
            format!(
                "`{}` is not there yet and will be made: {free}",
                path.display()
            ),
        );
    }
}

fn daemon(config: &Config, findings: &mut Findings) -> Option<StatusView> {
    const WHAT: &str = "daemon";
    let socket = config.control.socket.clone();
    let asked = Client::at(socket, Format { json: false })
        .and_then(|client| client.get::<StatusView>("/api/v1/status"));
    match asked {
        Ok(status) if status.ready => {
            findings.ok(
                WHAT,
                format!(
                    "version {} runs as pid {} and is ready",
                    status.version, status.pid
                ),
            );
            Some(status)
        }
        Ok(status) => {
            findings.failure(
                WHAT,
                format!(
                    "pid {} is not ready: {}",
                    status.pid,
                    status.problems.join("; ")
                ),
                "see `innkeeper status` and the daemon's own log",
            );
            Some(status)
        }
        Err(failure) => {
            findings.warning(WHAT, failure.one_line(), "start it with `innkeeper serve`");
            None
        }
    }
}

fn removals(daemon: Option<&StatusView>, findings: &mut Findings) {
    const WHAT: &str = "removals";
    let Some(status) = daemon else { return };
    match &status.removals_halted {
        Some(halt) => findings.failure(
            WHAT,
            format!("halted since {}: {}", halt.since, halt.reason),
            halt.remedy.clone(),
        ),
        None => findings.ok(WHAT, "go on"),
    }
}

fn listener(config: &Config, daemon: Option<&StatusView>, findings: &mut Findings) {
    const WHAT: &str = "webhook port";
    let webhook = &config.webhooks.github;
    if !webhook.enabled {
        findings.ok(WHAT, "the webhook listener is off");
        return;
    }
    if let Some(address) = daemon.and_then(|status| status.listeners.webhooks.as_ref()) {
        findings.ok(WHAT, format!("the daemon listens at {address}"));
        return;
    }
    let wanted = (webhook.host.trim_matches(['[', ']']), webhook.port);
    let shown = format!("{}:{}", webhook.host, webhook.port);
    let addresses = match wanted.to_socket_addrs() {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => {
            findings.failure(
                WHAT,
                format!("`{}` is no address of this machine: {error}", webhook.host),
                "change webhooks.github.host",
            );
            return;
        }
    };
    // Given up again at once; nobody is listened to.
    match TcpListener::bind(addresses.as_slice()) {
        Ok(_free) => findings.ok(WHAT, format!("{shown} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => findings.failure(
            WHAT,
            format!("{shown} is in use by another program"),
            "end that program, or change webhooks.github.port",
        ),
        Err(error) => findings.failure(
            WHAT,
            format!("{shown} cannot be listened at: {error}"),
            "change webhooks.github.host or port",
        ),
    }
}

fn sessions(config: &Config, env: &Environment, findings: &mut Findings) {
    const WHAT: &str = "sessions";
    if config.sessions.default.is_none() {
        findings.warning(
            WHAT,
            "no profile is the default: where no rule names one, checkouts are prepared and nothing is started",
            "add one under sessions.profiles and name it in sessions.default, unless this is meant",
        );
    }
    for (name, profile) in &config.sessions.profiles {
        let Some(program) = profile.start.first() else {
            continue;
        };
        match find_program(program, env) {
            Some(found) => findings.ok(WHAT, format!("profile {name}: {}", found.display())),
            None => findings.failure(
                WHAT,
                format!("profile {name}: there is no program `{program}`"),
                "install it, or correct sessions.profiles",
            ),
        }
    }
}

fn tmux(env: &Environment, findings: &mut Findings) {
    match find_program("tmux", env) {
        Some(path) => findings.ok("tmux", format!("at {} (not needed)", path.display())),
        None => findings.ok("tmux", "not installed (not needed)"),
    }
}

/// Looks a program up as the system would.
fn find_program(program: &str, env: &Environment) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    std::env::split_paths(env.non_empty("PATH")?)
        .map(|dir| dir.join(program))
        .find(is_program)
}
