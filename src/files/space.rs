//! How much room is left.

use std::io;
use std::path::Path;

/// Room on a file system, for a process without privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes; none where the file system does not count them.
    pub inodes: Option<u64>,
}

/// Returns the room left on the file system that holds `path`.
pub fn free_space(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Space {
        bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        inodes: (stat.f_files != 0).then_some(stat.f_favail),
    })
}
