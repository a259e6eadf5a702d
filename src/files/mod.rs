//! Files: written whole or not at all, renamed without replacing, locked,
//! removed without following anything out of where they are.
//!
//! Blocking, all of it; callers on the runtime use `spawn_blocking`.

mod lock;
mod measure;
mod remove;
mod rename;
mod space;
mod write;

pub use lock::{LockError, LockFile};
pub use measure::allocated_bytes;
pub use remove::{Removed, remove_empty_parents, remove_tree};
pub use rename::rename_noreplace;
pub use space::{Space, free_space};
pub use write::{
    atomic_write, atomic_write_private, claim, copy_with_times, create_dirs, create_new,
    sweep_temporary, sync_dir, sync_file_system,
};
