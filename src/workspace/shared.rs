//! The shared clone, which belongs to the agents: made by us, then only
//! compared with what we wrote, never believed.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use git2::Repository;

use super::identity::read_line;
use super::layout::RepoPath;
use super::vault::{self, Marker};
use super::{WorkspaceError, ghosts};
use crate::files;
use crate::git::quoted;

/// What the daemon makes first, outside `worktrees/`.
pub const NEW: &str = "innkeeper-new";
/// Where records are moved before they are deleted, and what was set aside.
pub const TRASH: &str = "innkeeper-trash";
/// The marker.
pub const MARKER: &str = "innkeeper.json";

/// Returns the configuration of a shared clone.
///
/// Reflogs must be asked for in a bare repository. A fetch refspec, and whether
/// it is bare, are per worktree: the shared file must not be rewritten by every
/// `git branch`, which fails when several run at once.
pub fn config(clone_url: &str) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tlogAllRefUpdates = true\n\
         [extensions]\n\tworktreeConfig = true\n\
         [gc]\n\tauto = 0\n\tworktreePruneExpire = never\n\tpruneExpire = never\n\
         [maintenance]\n\tauto = false\n\
         [branch]\n\tautoSetupMerge = false\n\
         [remote \"origin\"]\n\turl = {}\n",
        quoted(clone_url)
    )
}

const CONFIG_WORKTREE: &str = "[core]\n\tbare = true\n";

/// Writes a shared clone at `dir`, which does not exist, from a vault that will
/// stand at `vault`. Blocking.
pub fn write(
    dir: &Path,
    repo: &RepoPath,
    clone_url: &str,
    vault: &Path,
) -> Result<(), WorkspaceError> {
    for sub in [
        "objects/info",
        "objects/pack",
        "refs/heads",
        "refs/remotes/origin",
        "refs/tags",
        "info",
        "worktrees",
        NEW,
        TRASH,
    ] {
        files::create_dirs(&dir.join(sub))?;
    }
    let repository = vault::open(vault)?;
    let default = vault::default_branch(vault);
    let branch = default.as_deref().unwrap_or("main");
    files::create_new(&dir.join("config"), config(clone_url).as_bytes())?;
    files::create_new(&dir.join("config.worktree"), CONFIG_WORKTREE.as_bytes())?;
    files::create_new(&dir.join("HEAD"), head(branch).as_bytes())?;
    files::create_new(
        &dir.join("objects/info/alternates"),
        alternates(vault).as_bytes(),
    )?;
    files::create_new(
        &dir.join("packed-refs"),
        remote_refs(&repository)?.as_bytes(),
    )?;
    if let Some(default) = default {
        files::create_new(
            &dir.join("refs/remotes/origin/HEAD"),
            format!("ref: refs/remotes/origin/{default}\n").as_bytes(),
        )?;
    }
    files::create_new(&dir.join(MARKER), Marker::of(repo).text().as_bytes())?;
    Ok(())
}

/// Returns the remote's branches as a `packed-refs` file of tracking branches.
pub fn remote_refs(vault: &Repository) -> Result<String, WorkspaceError> {
    let mut heads = vault::heads(vault)?;
    heads.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    let mut text = String::from("# pack-refs with: sorted \n");
    for (branch, oid) in heads {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{oid} refs/remotes/origin/{branch}");
    }
    Ok(text)
}

/// What `HEAD` of a shared clone says.
pub(super) fn head(branch: &str) -> String {
    format!("ref: refs/heads/{branch}\n")
}

/// Whether `HEAD` is a file that names a branch: without one git takes the
/// directory for no repository at all.
fn names_a_branch(path: &Path) -> bool {
    read_line(path).is_ok_and(|line| {
        line.strip_prefix("ref: ")
            .is_some_and(|name| name.starts_with("refs/") && git2::Reference::is_valid_name(name))
    })
}

fn alternates(vault: &Path) -> String {
    format!("{}\n", vault.join("objects").display())
}

/// Compares a shared clone with what was written, restores what could run code
/// or redirect an agent, and returns what differed. What was planted is set
/// aside, not deleted. Blocking.
///
/// The daemon reads none of it; this protects the agents from each other's
/// accidents.
pub fn restore_drift(
    shared: &Path,
    repo: &RepoPath,
    clone_url: &str,
    vault: &Path,
) -> Result<Vec<String>, WorkspaceError> {
    let mut drift = Vec::new();
    let wanted = config(clone_url);
    let config_path = shared.join("config");
    let found = fs::read(&config_path).unwrap_or_default();
    if found != wanted.as_bytes() {
        let (kept, keys) = ordinary_settings(&String::from_utf8_lossy(&found), &wanted);
        let text = format!("{wanted}{kept}");
        if text.as_bytes() != found && rewrite(&config_path, &text)? {
            drift.extend(keys);
        }
    }
    for (path, wanted) in [
        (shared.join("config.worktree"), CONFIG_WORKTREE.to_owned()),
        (shared.join("objects/info/alternates"), alternates(vault)),
        (shared.join(MARKER), Marker::of(repo).text()),
    ] {
        if fs::read(&path).unwrap_or_default() != wanted.as_bytes() {
            drift.push(name_of(shared, &path));
            if let Some(parent) = path.parent() {
                files::create_dirs(parent)?;
            }
            files::atomic_write(&path, wanted.as_bytes(), false)?;
        }
    }
    if !names_a_branch(&shared.join("HEAD")) {
        drift.push("HEAD".to_owned());
        let default = vault::default_branch(vault);
        let text = head(default.as_deref().unwrap_or("main"));
        files::atomic_write(&shared.join("HEAD"), text.as_bytes(), false)?;
    }
    for planted in [
        "hooks",
        "info/attributes",
        "info/grafts",
        "shallow",
        "objects/info/http-alternates",
        // Each would make git take another directory for this one.
        "commondir",
        "gitdir",
    ] {
        let path = shared.join(planted);
        if fs::symlink_metadata(&path).is_ok() {
            set_aside(shared, &path)?;
            drift.push(planted.to_owned());
        }
    }
    for dir in ["worktrees", NEW, TRASH] {
        files::create_dirs(&shared.join(dir))?;
    }
    // What its records name is looked up only where that is ours to believe.
    let view = vault::open(&vault.join("innkeeper/ctl")).ok();
    for ghost in ghosts::half_made_records(shared, view.as_ref(), ghosts::AGE) {
        drift.push(name_of(shared, &ghost));
        set_aside(shared, &ghost)?;
    }
    Ok(drift)
}

fn name_of(shared: &Path, path: &Path) -> String {
    path.strip_prefix(shared)
        .unwrap_or(path)
        .display()
        .to_string()
}

pub(super) fn set_aside(shared: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let trash = shared.join(TRASH);
    files::create_dirs(&trash)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = trash.join(format!("aside-{name}-{}", super::nonce()));
    match files::rename_noreplace(path, &aside) {
        // Another preparation was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// How long an agent's git that writes the configuration is waited for.
const REWRITE_PATIENCE: Duration = Duration::from_millis(500);

/// Rewrites the configuration under git's own lock; not at all while an agent's
/// git holds it for long: the next use looks again.
fn rewrite(config: &Path, text: &str) -> Result<bool, WorkspaceError> {
    let lock = config.with_extension("lock");
    let since = Instant::now();
    loop {
        match files::create_new(&lock, text.as_bytes()) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if since.elapsed() >= REWRITE_PATIENCE {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => {
                let _ = fs::remove_file(&lock);
                return Err(error.into());
            }
        }
    }
    fs::rename(&lock, config).map_err(|error| {
        let _ = fs::remove_file(&lock);
        WorkspaceError::io("replace", config, &error)
    })?;
    Ok(true)
}

/// Sections of which an agent may set what it likes: nothing in them runs a
/// program or leads elsewhere.
const ORDINARY: [&str; 8] = [
    "user", "branch", "color", "pull", "push", "rebase", "advice", "log",
];

/// Returns what to keep of a configuration, as text, and the keys that are not
/// kept and were not ours.
fn ordinary_settings(found: &str, ours: &str) -> (String, Vec<String>) {
    let ours: Vec<(String, String)> = settings(ours)
        .into_iter()
        .map(|s| (s.key(), s.value))
        .collect();
    let mut kept = String::new();
    let mut dropped = Vec::new();
    let mut missing = ours.clone();
    for setting in settings(found) {
        let pair = (setting.key(), setting.value.clone());
        if ours.contains(&pair) {
            missing.retain(|one| *one != pair);
            continue;
        }
        let ordinary = (ORDINARY.contains(&setting.section.as_str())
            && pair.0 != "branch.autosetupmerge")
            || is_of_submodule(&setting)
            || pair.0 == "remote.origin.gh-resolved";
        if ordinary && setting.is_whole {
            push_setting(&mut kept, &setting);
        } else {
            dropped.push(pair.0);
        }
    }
    dropped.extend(missing.into_iter().map(|(key, _)| key));
    dropped.sort();
    dropped.dedup();
    (kept, dropped)
}

/// What a sparse checkout needs to stay one.
const SPARSE: [&str; 3] = [
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "index.sparse",
];

/// Returns those settings of a checkout's own configuration that an agent may
/// have set, that run nothing and lead nowhere else, and that are not in `ours`.
pub(super) fn harmless_settings(found: &str, ours: &str) -> String {
    let ours: Vec<(String, String)> = settings(ours)
        .into_iter()
        .map(|setting| (setting.key(), setting.value))
        .collect();
    let mut kept = String::new();
    for setting in settings(found) {
        let key = setting.key();
        let harmless = ORDINARY.contains(&setting.section.as_str())
            || is_of_submodule(&setting)
            || (setting.subsection.is_none() && SPARSE.contains(&key.as_str()));
        if harmless && setting.is_whole && !ours.contains(&(key, setting.value.clone())) {
            push_setting(&mut kept, &setting);
        }
    }
    kept
}

/// What a submodule's repository needs and what leads nowhere but to its remote.
const OF_SUBMODULES: [&str; 10] = [
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.symlinks",
    "core.worktree",
    "extensions.worktreeconfig",
    "extensions.objectformat",
    "submodule.active",
];

/// Returns the configuration of a submodule's repository without what could run
/// something; as it is, if nothing in it could.
pub(super) fn tamed(text: &str) -> String {
    let all = settings(text);
    let is_harmless = |setting: &Setting| {
        let of_remote = setting.section == "remote"
            && matches!(setting.name.to_lowercase().as_str(), "url" | "fetch");
        setting.is_whole
            && (ORDINARY.contains(&setting.section.as_str())
                || is_of_submodule(setting)
                || of_remote
                || OF_SUBMODULES.contains(&setting.key().as_str()))
    };
    if all.iter().all(is_harmless) {
        return text.to_owned();
    }
    let mut kept = String::new();
    for setting in all.iter().filter(|setting| is_harmless(setting)) {
        push_setting(&mut kept, setting);
    }
    kept
}

/// Which submodules are active, and where they come from; not how they are
/// updated, which can be a command.
fn is_of_submodule(setting: &Setting) -> bool {
    setting.section == "submodule"
        && setting.subsection.is_some()
        && matches!(setting.name.to_lowercase().as_str(), "active" | "url")
}

fn push_setting(text: &mut String, setting: &Setting) {
    let head = match &setting.subsection {
        Some(subsection) => format!("[{} {}]", setting.section, quoted(subsection)),
        None => format!("[{}]", setting.section),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{head}\n\t{} = {}",
        setting.name,
        quoted(&setting.value)
    );
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Setting {
    section: String,
    subsection: Option<String>,
    name: String,
    value: String,
    /// Whether it was understood to the end.
    is_whole: bool,
}

impl Setting {
    fn key(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.name),
            None => format!("{}.{}", self.section, self.name),
        }
    }
}

/// Reads the settings that git itself writes; what is not understood is not
/// whole, and so is not kept.
fn settings(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let (mut section, mut subsection) = (String::new(), None);
    for line in text.lines() {
        let mut line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with(';') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let mut quoted = false;
            let mut escaped = false;
            let end = rest.char_indices().find(|(_, c)| {
                if escaped {
                    escaped = false;
                } else if *c == '\\' {
                    escaped = true;
                } else if *c == '"' {
                    quoted = !quoted;
                }
                *c == ']' && !quoted
            });
            let Some((end, _)) = end else {
                continue;
            };
            let head = &rest[..end];
            (section, subsection) = if let Some((name, sub)) = head.split_once('"') {
                let sub = sub.trim_end().trim_end_matches('"');
                (name.trim().to_lowercase(), Some(unescaped(sub).0))
            } else if let Some((name, sub)) = head.split_once('.') {
                (name.to_lowercase(), Some(sub.to_lowercase()))
            } else {
                (head.trim().to_lowercase(), None)
            };
            line = rest[end + 1..].trim();
            if line.is_empty() {
                continue;
            }
        }
        let (name, raw) = line.split_once('=').unwrap_or((line, "true"));
        let (value, is_whole) = unescaped(raw.trim());
        found.push(Setting {
            section: section.clone(),
            subsection: subsection.clone(),
            name: name.trim().to_lowercase(),
            value,
            is_whole,
        });
    }
    found
}

/// Undoes git's quoting; false if a comment or a continued line is in it.
fn unescaped(raw: &str) -> (String, bool) {
    let mut out = String::new();
    let mut whole = true;
    let mut inside = false;
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => inside = !inside,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c @ ('"' | '\\')) => out.push(c),
                _ => whole = false,
            },
            '#' | ';' if !inside => whole = false,
            c => out.push(c),
        }
    }
    (out, whole && !inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_is_read_back_as_it_is() {
        let (kept, dropped) =
            ordinary_settings(&config("https://h/o/r.git"), &config("https://h/o/r.git"));
        assert_eq!((kept.as_str(), dropped.len()), ("", 0));
    }

    #[test]
    fn what_could_run_code_or_redirect_goes_and_ordinary_settings_stay() {
        let ours = config("https://h/o/r.git");
        let found = format!(
            "{ours}[user]\n\tname = A \"B\"\n[branch \"x\"]\n\tremote = origin\n\
             [core]\n\tfsmonitor = evil\n\thooksPath = /evil\n[include]\n\tpath = /evil\n\
             [filter \"z\"]\n\tsmudge = evil\n[alias]\n\tst = !evil\n[remote \"origin\"]\n\turl = ext::evil\n\
             \tgh-resolved = base\n[submodule \"lib\"]\n\tactive = true\n\turl = https://h/o/lib.git\n\
             \tupdate = !evil\n[url \"ext::\"]\n\tinsteadOf = https://\n"
        );
        let (kept, dropped) = ordinary_settings(&found, &ours);
        assert_eq!(
            dropped,
            [
                "alias.st",
                "core.fsmonitor",
                "core.hookspath",
                "filter.z.smudge",
                "include.path",
                "remote.origin.url",
                "submodule.lib.update",
                "url.ext::.insteadof",
            ]
        );
        assert!(
            kept.contains("name = \"A B\"") && kept.contains("[branch \"x\"]"),
            "{kept}"
        );
        assert!(
            kept.contains("gh-resolved") && kept.contains("lib.git") && !kept.contains("evil"),
            "{kept}"
        );
        // Once restored, it is stable.
        let (again, dropped) = ordinary_settings(&format!("{ours}{kept}"), &ours);
        assert_eq!((again, dropped.len()), (kept, 0));
    }

    #[test]
    fn one_of_our_settings_that_is_gone_counts_as_drift() {
        let ours = config("u");
        let found = ours.replace("\tautoSetupMerge = false\n", "");
        assert_eq!(
            ordinary_settings(&found, &ours).1,
            ["branch.autosetupmerge"]
        );
    }
}
