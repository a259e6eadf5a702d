//! `innkeeper init`: a configuration, a webhook secret, and what to do next.
//!
//! Everything goes below one directory. Nothing that exists is changed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Failure, Format, Global, Output};
use crate::config::{self, Environment};

/// The commented example; what `init` writes is this with a few lines changed.
const EXAMPLE: &str = include_str!("../../config/innkeeper.yaml");

const CONFIG_FILE: &str = "innkeeper.yaml";
const SECRET_FILE: &str = "webhook-secret";
const SECRET_BYTES: usize = 32;

/// The events that the webhook is to send, by GitHub's names and as its page
/// calls them.
const EVENTS: [(&str, &str); 5] = [
    ("issues", "Issues"),
    ("issue_comment", "Issue comments"),
    ("pull_request", "Pull requests"),
    ("pull_request_review", "Pull request reviews"),
    (
        "pull_request_review_comment",
        "Pull request review comments",
    ),
];

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes DIR/innkeeper.yaml and DIR/webhook-secret, with the state in \
DIR/state and the checkouts in DIR/checkouts. Nothing that exists is changed.

Examples:
  innkeeper init --dir ~/innkeeper
  innkeeper init --dir /srv/innkeeper --json"
)]
pub(super) struct Arguments {
    /// The directory for the configuration and everything else; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    if global.config.is_some() {
        return Err(Failure::usage(anyhow::anyhow!(
            "init writes a new configuration and takes no --config"
        ))
        .help("say where it goes with --dir"));
    }
    let env = Environment::of_process();
    let dir = env.current_dir().join(&arguments.dir);
    let file = dir.join(CONFIG_FILE);
    let secret_file = dir.join(SECRET_FILE);
    make_dir(&dir, 0o755)?;
    // The configuration goes last, so that an attempt that failed can be made again.
    if exists(&file)? {
        return Err(Failure::failed(anyhow::anyhow!(
            "`{}` exists already and is left as it is",
            file.display()
        ))
        .help("change it with an editor and check it with `innkeeper config check`, or give another --dir"));
    }
    let text = configuration()?;
    let loaded = config::parse(&text, &file, &env).map_err(Failure::configuration)?;
    let secret_is_new = make_secret(&secret_file)?;
    make_dir(&dir.join("state"), 0o700)?;
    make_dir(&dir.join("checkouts"), 0o700)?;
    create_new(&file, text.as_bytes(), 0o644)?;

    let webhook = &loaded.config.webhooks.github;
    let local = format!("http://{}:{}{}", webhook.host, webhook.port, webhook.path);
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&json!({
            "configuration": file,
            "secret_file": secret_file,
            "secret_is_new": secret_is_new,
            "webhook": {
                "listens_at": local,
                "path": webhook.path,
                "content_type": "application/json",
                "events": EVENTS.map(|(name, _)| name),
            },
        }))?;
        return output.flush();
    }
    let names: Vec<_> = EVENTS.iter().map(|(_, title)| *title).collect();
    let shown = file.display();
    output.heading(&format!("Wrote {shown}"))?;
    if secret_is_new {
        output.line(&format!(
            "Made a webhook secret in {}",
            secret_file.display()
        ))?;
    } else {
        output.line(&format!(
            "Took the secret that is in {}",
            secret_file.display()
        ))?;
    }
    output.line("")?;
    output.heading("Create the webhook at https://github.com/OWNER/REPO/settings/hooks/new (or of the organisation):")?;
    output.pairs(&[
        (
            "  Payload URL",
            Some(format!(
                "https://YOUR-HOST{}  (a proxy or tunnel that leads to {local})",
                webhook.path
            )),
        ),
        ("  Content type", Some("application/json".to_owned())),
        (
            "  Secret",
            Some(format!("what `cat {}` prints", secret_file.display())),
        ),
        ("  SSL verification", Some("enabled".to_owned())),
        (
            "  Events",
            Some(format!(
                "let me select individual events: {}",
                names.join(", ")
            )),
        ),
    ])?;
    output.line("")?;
    output.heading("Then:")?;
    output.line(&format!("  1. say what runs in a checkout: add a profile under `sessions.profiles` in {shown} and name it in `sessions.default`; without one a checkout is prepared and nothing is started"))?;
    output.line(&format!("  2. innkeeper --config {shown} doctor"))?;
    output.line(&format!("  3. innkeeper --config {shown} serve"))?;
    output.line("  4. put the label `innkeeper` on a pull request, or write `/innkeeper start` in a comment")?;
    output.flush()
}

/// Returns the example with everything below the file's own directory.
fn configuration() -> Result<String, Failure> {
    let mut text = EXAMPLE.to_owned();
    for (from, to) in [
        ("  root: ~/.local/state/innkeeper ", "  root: ./state "),
        (
            "    secretEnv: [INNKEEPER_WEBHOOK_SECRET]",
            "    secretEnv: []",
        ),
        (
            "    secretFiles: [] ",
            "    secretFiles: [./webhook-secret] ",
        ),
        ("    root: \"\" ", "    root: ./checkouts "),
    ] {
        if text.matches(from).count() != 1 {
            return Err(Failure::failed(anyhow::anyhow!(
                "the built-in example does not have the line `{from}` once; this is a bug"
            )));
        }
        text = text.replacen(from, to, 1);
    }
    Ok(text)
}

fn make_dir(dir: &Path, mode: u32) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(|error| wrong("make the directory", dir, error))
}

fn exists(path: &Path) -> Result<bool, Failure> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(wrong("look at", path, error)),
    }
}

/// Makes a secret, unless one is there: a hook may be using it. Returns whether
/// it is new.
fn make_secret(path: &Path) -> Result<bool, Failure> {
    if exists(path)? {
        return Ok(false);
    }
    let mut random = [0; SECRET_BYTES];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|error| wrong("read", Path::new("/dev/urandom"), error))?;
    create_new(path, format!("{}\n", hex::encode(random)).as_bytes(), 0o600)?;
    Ok(true)
}

fn create_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| wrong("write", path, error))
}

fn wrong(action: &str, path: &Path, error: std::io::Error) -> Failure {
    Failure::failed(
        anyhow::Error::from(error).context(format!("could not {action} `{}`", path.display())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_used() {
        let text = configuration().expect("every line is there");
        let env = Environment::new([("HOME", "/home/op")], "/cwd");
        let loaded =
            config::parse(&text, Path::new("/srv/inn/innkeeper.yaml"), &env).expect("it is valid");
        assert_eq!(loaded.warnings, []);
        let config = loaded.config;
        assert_eq!(config.state.root, Path::new("/srv/inn/state"));
        assert_eq!(
            config.routing.workspace.root.as_deref(),
            Some(Path::new("/srv/inn/checkouts"))
        );
        let webhook = &config.webhooks.github;
        assert_eq!(webhook.secret_files, [Path::new("/srv/inn/webhook-secret")]);
        assert!(webhook.secret_env.is_empty());
    }

    #[test]
    fn the_events_asked_for_are_events_of_github() {
        for (name, _) in EVENTS {
            let text =
                format!("routing: {{ rules: [{{ when: {{ event: {name} }}, then: start }}] }}");
            let env = Environment::new([("HOME", "/home/op")], "/cwd");
            let loaded = config::parse(&text, Path::new("/f.yaml"), &env).expect("valid");
            assert!(
                loaded
                    .warnings
                    .iter()
                    .all(|warning| !warning.message().contains(name)),
                "{name}"
            );
        }
    }
}
