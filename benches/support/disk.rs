//! The file system that a benchmark runs on: it decides a lot, so it is told.

use std::fs::File;
use std::path::Path;

/// A file system.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its type, as the kernel names it.
    pub kind: String,
    /// It is an ext4 without a journal. Creating files there becomes many times
    /// slower after many were deleted, and nothing waits for a disk: its figures
    /// are not those of an ordinary one.
    pub lacks_journal: bool,
}

impl Disk {
    /// Returns the file system that holds `path`.
    pub fn of(path: &Path) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let holder = mounts
            .lines()
            .filter_map(|line| {
                let (left, right) = line.split_once(" - ")?;
                let mount = left.split(' ').nth(4)?;
                let mut right = right.split(' ');
                let (kind, device) = (right.next()?, right.next()?);
                path.starts_with(mount).then_some((mount, kind, device))
            })
            .max_by_key(|(mount, _, _)| mount.len());
        let Some((_, kind, device)) = holder else {
            return Self {
                kind: "unknown file system".to_owned(),
                lacks_journal: false,
            };
        };
        let device = device.rsplit('/').next().unwrap_or_default();
        let journal = std::fs::read_to_string(format!("/sys/fs/ext4/{device}/journal_task"));
        Self {
            kind: kind.to_owned(),
            lacks_journal: kind == "ext4" && journal.is_ok_and(|task| task.trim() == "<none>"),
        }
    }

    /// Says on what the benchmark runs, with a warning where that misleads.
    #[expect(clippy::print_stdout, reason = "it belongs to the answer")]
    pub fn tell(&self, path: &Path) {
        println!("on {} ({})", path.display(), self.kind);
        if self.lacks_journal {
            println!(
                "warning: ext4 without a journal; its figures are not those of an ordinary disk"
            );
        }
    }
}

/// Writes out what is not on disk yet, so that nobody pays for another's writes.
pub(super) fn settle(dir: &Path) -> anyhow::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}
