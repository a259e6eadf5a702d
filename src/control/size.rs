//! How much of the disk a checkout takes.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::CheckoutView;

/// Bytes in a block of `st_blocks`, whatever the file system's own block is.
const BLOCK_BYTES: u64 = 512;

/// Fills in the sizes. A directory that is gone has none.
pub(super) async fn measured(views: Vec<CheckoutView>) -> Vec<CheckoutView> {
    let unmeasured = views.clone();
    tokio::task::spawn_blocking(move || {
        let mut views = views;
        for view in &mut views {
            view.bytes = view
                .path
                .as_deref()
                .and_then(|path| bytes_below(Path::new(path)));
        }
        views
    })
    .await
    .unwrap_or(unmeasured)
}

/// Returns the bytes allocated below `root`, each file once, following no link.
/// What cannot be read counts as nothing.
fn bytes_below(root: &Path) -> Option<u64> {
    let mut seen = HashSet::new();
    let top = fs::symlink_metadata(root).ok()?;
    let mut total = top.blocks() * BLOCK_BYTES;
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.nlink() > 1 && !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            total += metadata.blocks() * BLOCK_BYTES;
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once_and_a_link_out_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("big"), vec![1; 1 << 20]).expect("written");
        fs::write(dir.path().join("a"), vec![1; 1 << 16]).expect("written");
        let before = bytes_below(dir.path()).expect("there");
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).expect("linked");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).expect("linked");
        let after = bytes_below(dir.path()).expect("there");
        assert!(before >= 1 << 16, "{before}");
        assert!(after < before + (1 << 16), "{before} {after}");
        assert_eq!(bytes_below(&dir.path().join("gone")), None);
    }
}
