//! Child processes: each in a process group of its own, with a deadline, ended
//! as a group and always reaped.
//!
//! [`run()`] is the one way to run a child to its end. No child is started with
//! a hook between fork and exec, so that starting one costs the same at any
//! size of the daemon. What other processes are doing is told by [`tree`], and where
//! this one can be made to die by [`crash_point`].

pub mod crash_point;
pub mod inside;
mod marked;
mod run;
pub mod tree;

pub use crash_point::CrashPoint;
pub use marked::end_marked;
pub use run::{Output, RunError, Spec, run};
