//! How much of the disk a checkout takes.

use std::collections::BTreeSet;
use std::path::Path;

use super::CheckoutView;
use crate::files::allocated_bytes;

/// Fills in the sizes. A directory that is gone has none.
pub(super) async fn measured(views: Vec<CheckoutView>) -> Vec<CheckoutView> {
    let unmeasured = views.clone();
    tokio::task::spawn_blocking(move || {
        let mut views = views;
        for view in &mut views {
            view.bytes = view
                .path
                .as_deref()
                .and_then(|path| allocated_bytes(Path::new(path), &BTreeSet::new()));
        }
        views
    })
    .await
    .unwrap_or(unmeasured)
}
