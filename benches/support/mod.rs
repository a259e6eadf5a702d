//! What the benchmarks share: arguments, the file system they run on, pairs of
//! measurements, repositories of a given size, and the answer as a table and as
//! JSON.

// Each benchmark uses a part of it.
#![allow(dead_code, unused_imports)]

mod disk;
mod figures;
mod options;
mod repository;
mod tail;

pub use disk::Disk;
pub use figures::{Bound, Figure, Figures, Pairs, median, millis, settled};
pub use options::Options;
pub use repository::{Floor, HOST, Origin};
pub use tail::Tail;
