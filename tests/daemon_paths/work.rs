//! Work in a checkout, and a checkout as it can be compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, widgets};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, Origin};

pub const REFERENCE: &str = "acme/widgets#1";

pub fn pull_requests(workspace: &str) -> Config {
    Config {
        routing: STARTS_PULL_REQUESTS.into(),
        workspace: workspace.into(),
        ..Config::default()
    }
}

/// A running daemon with a pull request that has a checkout.
pub fn with_checkout(config: Config) -> (Inn, Origin, PullRequest, PathBuf) {
    let mut inn = Inn::with(Transport::File, config);
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    (inn, origin, request, checkout)
}

/// Leaves work of many kinds in a checkout.
pub fn work_in(inn: &Inn, checkout: &Path) {
    let write = |name: &[u8], text: &str, mode: u32| {
        let path = checkout.join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
    };
    write(b"committed", "committed\n", 0o644);
    inn.git(checkout, &["add", "--all"]);
    inn.git(checkout, &["commit", "--quiet", "-m", "committed"]);
    write(b"README", "stashed\n", 0o644);
    inn.git(checkout, &["stash", "--quiet"]);
    write(b"staged", "staged\n", 0o755);
    inn.git(checkout, &["add", "staged"]);
    write(b"README", "edited\n", 0o644);
    write(b"dir with blanks/new\nline", "untracked\n", 0o600);
    write(b"-dash \xff", "no text\n", 0o644);
    write(b".env", "SECRET=1\n", 0o600);
    std::fs::create_dir(checkout.join("empty")).expect("a directory");
    std::os::unix::fs::symlink("/nowhere", checkout.join("dangling")).expect("a link");
    std::fs::remove_file(checkout.join("pr-1.txt")).expect("removed");
}

/// A checkout as it can be looked at, without its git directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    git: Vec<String>,
}

impl Snapshot {
    pub fn of(inn: &Inn, checkout: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut waiting = vec![checkout.to_owned()];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path == checkout.join(".git") {
                    continue;
                }
                let stat = path.symlink_metadata().expect("it is there");
                let content = if stat.is_dir() {
                    waiting.push(path.clone());
                    Vec::new()
                } else if stat.is_symlink() {
                    let target = std::fs::read_link(&path).expect("a link");
                    target.into_os_string().as_bytes().to_owned()
                } else {
                    std::fs::read(&path).expect("a file")
                };
                files.insert(path, (stat.permissions().mode(), content));
            }
        }
        let files = files
            .into_iter()
            .map(|(path, seen)| {
                let name = path.strip_prefix(checkout).expect("it is below");
                (name.to_owned(), seen)
            })
            .collect();
        let git = [
            &["symbolic-ref", "HEAD"][..],
            &["rev-parse", "HEAD"],
            &["ls-files", "--stage", "-v"],
            &["status", "--porcelain=v2", "--ignored", "-uall"],
            &["stash", "list"],
            &["stash", "show", "-p"],
        ];
        Self {
            files,
            git: git
                .iter()
                .map(|question| inn.git(checkout, question))
                .collect(),
        }
    }
}

/// Closes the item of a checkout with work in it; returns the archive's id.
pub fn archived(inn: &mut Inn, request: &PullRequest, checkout: &Path) -> String {
    let id = inn.done(&request.closed_unmerged());
    let cleaned = inn.told("workspace.cleaned", &id);
    let created = inn.told("archive.created", &id);
    assert_eq!(cleaned["archive"], created["archive"], "{}", inn.story());
    assert!(created["bytes"].as_u64().expect("bytes") > 0);
    assert!(!checkout.exists(), "{} is left", checkout.display());
    created["archive"].as_str().expect("an id").to_owned()
}

pub fn json(inn: &Inn, arguments: &[&str]) -> Value {
    let text = inn.ok(&[arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Runs a command that is refused; returns what it says on standard error.
pub fn refused(inn: &Inn, arguments: &[&str]) -> String {
    let output = inn.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    said
}
