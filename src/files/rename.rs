//! Renaming without replacing.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

/// Renames `from` to `to`, which must not exist. (A plain rename replaces an
/// empty directory without a word.)
///
/// # Errors
///
/// `AlreadyExists` if something is there; the message names both paths.
pub fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    let renamed = match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => rename_elsewhere(from, to),
        renamed => renamed,
    };
    renamed.map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(
            error.kind(),
            format!(
                "could not rename `{}` to `{}`: {error}",
                from.display(),
                to.display()
            ),
        )
    })
}

/// On a file system that cannot promise it: a second name for a file cannot
/// replace anything either; for a directory there is only looking first.
fn rename_elsewhere(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty()) {
        Ok(()) => return rustix::fs::unlink(from),
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        Err(_directory_or_no_links) => {}
    }
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(Errno::EXIST);
    }
    rustix::fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_in_the_way_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&a).expect("made");
        std::fs::create_dir(&b).expect("made");
        let error = rename_noreplace(&a, &b).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir(&b).expect("removed");
        rename_noreplace(&a, &b).expect("renamed");
        assert!(b.is_dir() && !a.exists());
    }
}
