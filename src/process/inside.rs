//! Which processes work inside a directory.
//!
//! A process is inside if its working directory, its root, its executable, an
//! open file or a mapped file is the directory or below it. The kernel is asked
//! through `/proc`; what belongs to another user and cannot be read is not
//! found. A process that only bound a unix socket inside is found through the
//! kernel's list of sockets, without its id.
//!
//! Paths are compared as the kernel writes them, so the directory must be given
//! as a real path: after a rename the kernel tells the new one.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the kernel appends to the path of a file that was unlinked.
const DELETED: &[u8] = b" (deleted)";

/// A process, and one proof that it is inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Its id; none if only a socket's address tells of it.
    pub pid: Option<u32>,
    /// Its name as the kernel has it.
    pub name: String,
    /// How it was found: `cwd`, `root`, `exe`, `fd`, `map` or `socket`.
    pub how: &'static str,
}

impl std::fmt::Display for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{pid} {}", self.name),
            None => write!(f, "? {}", self.name),
        }
    }
}

/// Returns the processes inside any of `directories`, except those in `except`
/// (the caller's own).
///
/// # Errors
///
/// Only if `/proc` itself cannot be listed: a process that ends meanwhile, or
/// that may not be looked at, is passed over.
pub fn processes_inside(directories: &[&Path], except: &[u32]) -> io::Result<Vec<Inside>> {
    let tops: Vec<Top<'_>> = directories.iter().map(|dir| Top::new(dir)).collect();
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == own || except.contains(&pid) {
            continue;
        }
        let mut proved = proof(&entry.path(), &tops);
        if matches!(proved, Some("fd" | "map")) {
            // A child of ours that has not begun its own program has copies of our
            // descriptors; it loses them when it does, so it is asked again.
            proved = if is_copy_of_us(&entry.path()) {
                None
            } else {
                proof(&entry.path(), &tops)
            };
        }
        if let Some(how) = proved {
            let name = fs::read(entry.path().join("comm")).unwrap_or_default();
            found.push(Inside {
                pid: Some(pid),
                name: String::from_utf8_lossy(&name).trim_end().to_owned(),
                how,
            });
        }
    }
    found.extend(bound_sockets(&tops));
    found.sort_by_key(|one| one.pid);
    Ok(found)
}

/// Whether a process is a child of this one that still runs this very program:
/// between being forked and becoming another.
fn is_copy_of_us(process: &Path) -> bool {
    let us = Path::new("/proc/self");
    let same = |name: &str| {
        let (one, other) = (fs::read(process.join(name)), fs::read(us.join(name)));
        matches!((one, other), (Ok(one), Ok(other)) if one == other)
    };
    let parent = format!("PPid:\t{}", std::process::id());
    let is_child = fs::read_to_string(process.join("status"))
        .is_ok_and(|status| status.lines().any(|line| line == parent));
    let exe = |of: &Path| fs::read_link(of.join("exe")).ok();
    is_child && same("cmdline") && exe(process).is_some() && exe(process) == exe(us)
}

/// A directory, and what is needed to recognise it.
struct Top<'a> {
    path: &'a [u8],
    id: Option<(u64, u64)>,
}

impl<'a> Top<'a> {
    fn new(path: &'a Path) -> Self {
        Self {
            path: path.as_os_str().as_bytes(),
            id: fs::symlink_metadata(path)
                .ok()
                .map(|meta| (meta.dev(), meta.ino())),
        }
    }

    fn holds(&self, path: &[u8]) -> bool {
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        path.strip_prefix(self.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

fn proof(process: &Path, tops: &[Top<'_>]) -> Option<&'static str> {
    for how in ["cwd", "root", "exe"] {
        let link = process.join(how);
        if link_is_inside(&link, tops) {
            return Some(how);
        }
        // A process of another mount namespace sees the directory under another
        // name; the directory itself is still the same.
        if how != "exe"
            && let Ok(meta) = fs::metadata(&link)
            && tops
                .iter()
                .any(|top| top.id == Some((meta.dev(), meta.ino())))
        {
            return Some(how);
        }
    }
    if let Ok(descriptors) = fs::read_dir(process.join("fd")) {
        for descriptor in descriptors.flatten() {
            if link_is_inside(&descriptor.path(), tops) {
                return Some("fd");
            }
        }
    }
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let mapped = maps
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            line.iter()
                .position(|byte| *byte == b'/')
                .map(|at| &line[at..])
        })
        .any(|path| is_inside(&unescape(path), tops));
    mapped.then_some("map")
}

fn link_is_inside(link: &Path, tops: &[Top<'_>]) -> bool {
    fs::read_link(link).is_ok_and(|target| is_inside(target.as_os_str().as_bytes(), tops))
}

fn is_inside(path: &[u8], tops: &[Top<'_>]) -> bool {
    tops.iter().any(|top| top.holds(path))
}

/// Undoes the octal escapes of `/proc/*/maps` and `/proc/self/mountinfo`.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

/// Addresses of unix sockets below a directory. The list keeps the name a
/// socket was bound with, so this finds only what was bound since the directory
/// has its present name.
fn bound_sockets(tops: &[Top<'_>]) -> Vec<Inside> {
    let list = fs::read("/proc/net/unix").unwrap_or_default();
    list.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            line.iter()
                .position(|byte| *byte == b'/')
                .map(|at| &line[at..])
        })
        .filter(|path| is_inside(path, tops))
        .map(|path| Inside {
            pid: None,
            name: format!("socket {}", OsStr::from_bytes(path).to_string_lossy()),
            how: "socket",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Ends its child, whatever the test says.
    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a shell that has done `script` once this returns.
    fn shell(script: &str, cwd: &Path) -> Ended {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{script}; echo ready; read wait")])
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("the shell says that it is ready");
        Ended(child)
    }

    fn real_temp() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = fs::canonicalize(dir.path()).expect("it has a real path");
        (dir, path)
    }

    #[test]
    fn a_working_directory_an_open_file_and_a_deleted_file_are_found() {
        let (_keep, top) = real_temp();
        let co = top.join("co");
        fs::create_dir_all(co.join("deep")).expect("made");
        fs::write(co.join("f"), "x").expect("written");
        fs::write(co.join("g"), "x").expect("written");
        for (script, cwd, how) in [
            (":".to_owned(), co.join("deep"), "cwd"),
            (
                format!("exec 9< '{}'", co.join("f").display()),
                top.clone(),
                "fd",
            ),
            (
                format!("exec 9< '{0}'; rm '{0}'", co.join("g").display()),
                top.clone(),
                "fd",
            ),
        ] {
            let child = shell(&script, &cwd);
            let found = processes_inside(&[&co], &[]).expect("proc is readable");
            assert!(
                found
                    .iter()
                    .any(|one| one.pid == Some(child.0.id()) && one.how == how),
                "{script}: {found:?}"
            );
            let spared = processes_inside(&[&co], &[child.0.id()]).expect("proc is readable");
            assert_eq!(spared, []);
        }
    }

    #[test]
    fn a_sibling_whose_name_begins_alike_is_not_inside() {
        let (_keep, top) = real_temp();
        fs::create_dir(top.join("co")).expect("made");
        fs::create_dir(top.join("co-sibling")).expect("made");
        let _child = shell(":", &top.join("co-sibling"));
        let found = processes_inside(&[&top.join("co")], &[]).expect("proc is readable");
        assert_eq!(found, []);
    }

    #[test]
    fn a_mapped_executable_is_found() {
        let (_keep, top) = real_temp();
        let sleeper = top.join("sleeper");
        fs::copy("/bin/sleep", &sleeper).expect("copied");
        let child = Ended(
            Command::new(&sleeper)
                .arg("60")
                .spawn()
                .expect("the copy runs"),
        );
        let found = processes_inside(&[&top], &[]).expect("proc is readable");
        assert!(
            found
                .iter()
                .any(|one| one.pid == Some(child.0.id()) && one.how == "exe"),
            "{found:?}"
        );
    }

    #[test]
    fn a_socket_bound_inside_is_found() {
        let (_keep, top) = real_temp();
        let _socket = UnixListener::bind(top.join("s")).expect("bound");
        let found = processes_inside(&[&top], &[]).expect("proc is readable");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].how, "socket");
    }

    #[test]
    fn a_process_is_followed_through_a_rename() {
        let (_keep, top) = real_temp();
        fs::create_dir(top.join("co")).expect("made");
        let child = shell(":", &top.join("co"));
        fs::rename(top.join("co"), top.join("trash")).expect("renamed");
        let found = processes_inside(&[&top.join("trash")], &[]).expect("proc is readable");
        assert_eq!(found[0].pid, Some(child.0.id()));
    }

    #[test]
    fn octal_escapes_are_undone_and_nothing_else() {
        assert_eq!(unescape(b"/a\\012b\\040c\\d\\9"), b"/a\nb c\\d\\9");
    }
}
