//! What these tests share: a session's script that tells what it was handed, and
//! the question whether anything is left over.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::payloads::Repo;
use crate::support::world::{Config, HOST, World, git_output};

/// Every pull request and issue starts; comments are handed over by the built-in rule.
pub const EVERYTHING: &str =
    "rules:\n  - { name: all, when: { event: [pull_request, issues] }, then: start }";

/// One line for each text that is handed over.
const PROMPT: &str = "{{ event }}/{{ action }} {{ item.number }}\
{% if comment %} {{ comment.body_text }}{% endif %}{% if after %} {{ after }}{% endif %} end\\n";

/// Notes what it is told in `told/<item>`, next to itself. A lock that ends with
/// the process shows whether two of one item ever run at once.
const SCRIBE: &str = r#"
here=$(cd "$(dirname "$0")" && pwd)
name=$(printf %s "$INNKEEPER_WORK_ITEM" | tr -c a-zA-Z0-9 -)
exec 9>>"$here/told/$name.lock"
flock -n 9 || echo "two at once: $INNKEEPER_WORK_ITEM" >>"$here/told/violations"
[ "$(pwd -P)" = "$INNKEEPER_CHECKOUT" ] || echo "elsewhere: $(pwd -P)" >>"$here/told/violations"
{ echo "$1 $INNKEEPER_SESSION_ID"; cat "$INNKEEPER_PROMPT_FILE"; } >>"$here/told/$name"
"#;

/// How often something is repeated: `short`, or what the environment says.
pub fn rounds(short: usize) -> usize {
    std::env::var("INNKEEPER_TEST_ROUNDS").map_or(short, |rounds| {
        rounds
            .parse()
            .expect("INNKEEPER_TEST_ROUNDS is how often tests are repeated")
    })
}

/// Returns a profile of this name whose command is the scribe, followed by `more`.
pub fn scribe(world: &World, name: &str, more: &str) -> String {
    let told = world.root().join("told");
    std::fs::create_dir_all(&told).expect("a directory");
    std::fs::write(
        world.root().join(format!("{name}.sh")),
        format!("{SCRIBE}\n{more}\n"),
    )
    .expect("a script");
    format!(
        "  {name}:\n    start: [/bin/sh, -eu, ./{name}.sh, start]\n    resume: [/bin/sh, -eu, ./{name}.sh, resume]\n    prompt: \"{PROMPT}\"\n"
    )
    .replace("./", &format!("{}/", world.root().display()))
}

/// Returns a world whose sessions are scribes that go on with `more`.
pub fn world_of_scribes(change: impl FnOnce(&mut Config), more: &str) -> World {
    let mut world = World::new(&Config::default());
    let mut config = Config {
        routing: EVERYTHING.into(),
        sessions: format!(
            "default: scribe\nprofiles:\n{}",
            scribe(&world, "scribe", more)
        ),
        ..Config::default()
    };
    change(&mut config);
    world.configure(&config);
    world
}

/// Returns what the sessions of an item were told, line by line.
pub fn told(world: &World, owner_repo: &str, number: u64) -> Vec<String> {
    let item = format!("github:{HOST}/{owner_repo}#{number}");
    let name: String = item
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let text = std::fs::read_to_string(world.root().join("told").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns what the scribes complained of.
pub fn violations(world: &World) -> String {
    std::fs::read_to_string(world.root().join("told/violations")).unwrap_or_default()
}

/// Waits until no session of any item runs, by what the log tells.
pub fn wait_quiet(world: &World) {
    world.wait("the end of every run", |events| {
        let count = |names: &[&str]| {
            events
                .iter()
                .filter(|told| names.iter().any(|name| told["event"] == *name))
                .count()
        };
        let begun = count(&["session.started", "session.resumed"]);
        (begun == count(&["session.exited", "session.lost"])).then_some(())
    });
}

pub fn repo(owner: &str, name: &str, id: u64) -> Repo {
    Repo::new(owner, name, id).on(HOST)
}

/// Returns the slug of an item, by the checkouts that were prepared for it.
pub fn checkout_of(world: &World, delivery: &str) -> PathBuf {
    let prepared = world.wait_delivery("workspace.prepared", delivery);
    PathBuf::from(prepared["checkout"].as_str().expect("a path"))
}

/// Returns the names in a directory; none if it is not there.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

/// Returns every shared clone with its vault.
pub fn clones(world: &World) -> Vec<(PathBuf, PathBuf)> {
    let root = world.checkouts();
    let mut found = Vec::new();
    for host in names(&root).iter().filter(|name| !name.starts_with('.')) {
        for owner in names(&root.join(host)) {
            for repo in names(&root.join(host).join(&owner)) {
                found.push((
                    root.join(host).join(&owner).join(&repo),
                    root.join(".vault")
                        .join(host)
                        .join(&owner)
                        .join(format!("{repo}.git")),
                ));
            }
        }
    }
    found
}

/// Returns everything that exists of checkouts: their directories, the records
/// and branches in shared clones, the journal, and what is on its way in or out.
pub fn remains(world: &World) -> Vec<String> {
    let root = world.checkouts();
    let mut found = Vec::new();
    for area in [".staging", ".trash"] {
        found.extend(
            names(&root.join(area))
                .iter()
                .map(|name| format!("{area}/{name}")),
        );
    }
    for path in leaves(&root.join(".worktrees"), 4)
        .into_iter()
        .chain(leaves(&root.join(".work-items"), 1))
    {
        found.push(path.display().to_string());
    }
    for (shared, vault) in clones(world) {
        for area in ["worktrees", "innkeeper-new", "innkeeper-trash"] {
            found.extend(
                names(&shared.join(area))
                    .iter()
                    .map(|name| format!("{area}/{name}")),
            );
        }
        for area in ["innkeeper/checkouts", "innkeeper/views"] {
            found.extend(
                names(&vault.join(area))
                    .iter()
                    .map(|name| format!("vault {area}/{name}")),
            );
        }
        let branches = git_output(
            world.root(),
            &shared,
            &["for-each-ref", "--format=%(refname)", "refs/heads"],
        );
        for branch in String::from_utf8_lossy(&branches.stdout).lines() {
            if branch != "refs/heads/main" {
                found.push(branch.to_owned());
            }
        }
    }
    found
}

/// Returns the directories that stand `depth` levels below `dir`.
fn leaves(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let mut level = vec![dir.to_owned()];
    for _ in 0..depth {
        level = level
            .iter()
            .flat_map(|dir| {
                names(dir)
                    .into_iter()
                    .map(|name| dir.join(name))
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    level.into_iter().filter(|path| path.exists()).collect()
}

/// Waits until nothing of any checkout is left, and nothing works on one.
pub fn wait_nothing_left(world: &World) {
    let mut last = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::time::Instant::now() < deadline {
        last = remains(world);
        last.extend(processes(world.root()));
        if last.is_empty() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!("left over: {last:#?}");
}

/// Returns the processes that work below a directory or have it in their
/// arguments or environment, but for the daemon itself.
pub fn processes(dir: &Path) -> Vec<String> {
    let wanted = dir.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for name in names(Path::new("/proc")) {
        let Ok(pid) = name.parse::<u32>() else {
            continue;
        };
        let process = Path::new("/proc").join(&name);
        let text = |file: &str| {
            String::from_utf8_lossy(&std::fs::read(process.join(file)).unwrap_or_default())
                .replace('\0', " ")
        };
        let (command, environment) = (text("cmdline"), text("environ"));
        let inside = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        let ours = inside || command.contains(&wanted) || environment.contains(&wanted);
        let is_daemon = command.trim_end().ends_with("innkeeper serve");
        // The server of the tests runs below this very process.
        let served = command.contains("http-backend");
        if ours && !is_daemon && !served && pid != std::process::id() {
            found.push(format!("{pid} {command}"));
        }
    }
    found
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    let _gone = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .output();
}

/// Returns whether a process lives; a zombie does not.
pub fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

/// Checks that every shared clone and vault is whole.
pub fn assert_clones_are_whole(world: &World) {
    let clones = clones(world);
    assert!(!clones.is_empty(), "there is a shared clone");
    for (shared, vault) in clones {
        // The vault's HEAD names nothing by design, which fsck takes for damage.
        let of_shared: &[&str] = &["fsck", "--connectivity-only"];
        let of_vault: &[&str] = &["rev-list", "--objects", "--all", "--quiet"];
        for (repository, question) in [(shared, of_shared), (vault, of_vault)] {
            let checked = git_output(world.root(), &repository, question);
            assert!(
                checked.status.success(),
                "{}: {}",
                repository.display(),
                String::from_utf8_lossy(&checked.stderr)
            );
        }
    }
}

/// Returns the events of these names that are about one delivery.
pub fn of_delivery<'a>(events: &'a [Value], delivery: &str, names: &[&str]) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|told| {
            told["delivery"] == delivery && names.iter().any(|name| told["event"] == *name)
        })
        .collect()
}
