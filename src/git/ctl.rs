//! A private view of a git directory that agents can write.
//!
//! A ctl directory has its own `config`, `HEAD` and `info/`, and links to the
//! refs, objects and reflogs of the directory it shows. Git and libgit2 opened
//! on it see those and believe nothing else: no configuration, hooks,
//! attributes, grafts, shallow file, replaced objects or forged commit-graph.
//! It knows of no worktrees, so nothing may ever be pruned through it.
//!
//! It is thrown away and made again whenever it is not exactly as it should be;
//! making it takes less than a millisecond.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::files;

/// Configuration of a ctl directory.
pub const CONFIG: &str = "\
[core]
\trepositoryformatversion = 1
\tbare = false
\tfilemode = true
\tsymlinks = true
\tfsmonitor = false
\tuntrackedCache = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tcommitGraph = false
\tmultiPackIndex = false
\tsparseCheckout = true
\tlogAllRefUpdates = false
[index]
\tsparse = false
[advice]
\tsparseIndexExpanded = false
[gc]
\tauto = 0
\tpruneExpire = never
[maintenance]
\tauto = false
[uploadpack]
\tallowAnySHA1InWant = true
[extensions]
\tobjectFormat = ";

const HEAD: &[u8] = b"ref: refs/innkeeper/none\n";
const LINKS: [&str; 3] = ["refs", "objects", "packed-refs"];

/// One builder at a time in this process; it takes microseconds.
static BUILDING: Mutex<()> = Mutex::new(());

/// Makes sure that `ctl` is a view of `common`, a git directory of its own or
/// the common directory of worktrees. Blocking.
///
/// # Errors
///
/// What the system said; nothing half-made is left at `ctl`.
pub fn ensure(ctl: &Path, common: &Path) -> io::Result<()> {
    let _one = BUILDING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if is_whole(ctl, common) {
        return Ok(());
    }
    let parent = ctl.parent().ok_or(io::ErrorKind::InvalidInput)?;
    files::create_dirs(parent)?;
    files::remove_tree(ctl)?;
    let new = ctl.with_extension("new");
    files::remove_tree(&new)?;
    fs::create_dir(&new)?;
    fs::create_dir(new.join("info"))?;
    fs::create_dir(new.join("logs"))?;
    fs::write(new.join("config"), config())?;
    fs::write(new.join("HEAD"), HEAD)?;
    for link in LINKS {
        symlink(common.join(link), new.join(link))?;
    }
    symlink(common.join("logs/refs"), new.join("logs/refs"))?;
    fs::rename(&new, ctl)
}

fn config() -> String {
    format!("{CONFIG}sha1\n")
}

/// Whether it is exactly what [`ensure`] makes, and nothing more.
fn is_whole(ctl: &Path, common: &Path) -> bool {
    let links_to = |name: &str, target: PathBuf| {
        fs::read_link(ctl.join(name)).is_ok_and(|found| found == target)
    };
    let holds =
        |name: &str, bytes: &[u8]| fs::read(ctl.join(name)).is_ok_and(|found| found == bytes);
    let names = |dir: &str| fs::read_dir(ctl.join(dir)).map(|entries| entries.flatten().count());
    holds("config", config().as_bytes())
        && holds("HEAD", HEAD)
        && LINKS.iter().all(|link| links_to(link, common.join(link)))
        && links_to("logs/refs", common.join("logs/refs"))
        && names("").is_ok_and(|n| n == 7)
        && names("info").is_ok_and(|n| n == 0)
        && names("logs").is_ok_and(|n| n == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_the_refs_and_is_made_again_when_it_was_touched() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let common = dir.path().join("r.git");
        let ctl = dir.path().join("private/ctl");
        let shown = git2::Repository::init_bare(&common).expect("a repository");
        let tree = shown
            .treebuilder(None)
            .and_then(|b| b.write())
            .expect("a tree");
        let tree = shown.find_tree(tree).expect("a tree");
        let who = git2::Signature::now("a", "a@b").expect("a signature");
        let commit = shown
            .commit(Some("refs/heads/x"), &who, &who, "m", &tree, &[])
            .expect("a commit");
        ensure(&ctl, &common).expect("made");
        let seen = |ctl: &Path| {
            git2::Repository::open(ctl)
                .and_then(|r| r.refname_to_id("refs/heads/x"))
                .expect("seen")
        };
        assert_eq!(seen(&ctl), commit);
        for planted in ["hooks", "worktrees"] {
            fs::create_dir(ctl.join(planted)).expect("planted");
            ensure(&ctl, &common).expect("made again");
            assert!(!ctl.join(planted).exists());
        }
        fs::write(ctl.join("config"), "[core]\n\tfsmonitor = evil\n").expect("planted");
        ensure(&ctl, &common).expect("made again");
        assert!(is_whole(&ctl, &common));
        assert_eq!(seen(&ctl), commit);
    }
}
