//! The references of items, each asked for once in an answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::store::{Reader, StoreError};

#[derive(Default)]
pub(super) struct References(HashMap<i64, String>);

impl References {
    /// Returns the reference of the item of this number.
    pub(super) fn of(&mut self, reader: &Reader<'_>, item: i64) -> Result<String, StoreError> {
        Ok(match self.0.entry(item) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(reader.item(item)?.reference).clone(),
        })
    }
}
