//! Child processes: each in a process group of its own, with a deadline, ended
//! as a group and always reaped.
//!
//! [`run()`] is the one way to run a child to its end. No child is started with
//! a hook between fork and exec, so that starting one costs the same at any
//! size of the daemon. What other processes are doing is told by [`tree`].

pub mod inside;
mod marked;
mod run;
pub mod tree;

pub use marked::end_marked;
pub use run::{Output, RunError, Spec, run};
