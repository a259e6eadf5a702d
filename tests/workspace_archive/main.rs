//! Archiving what exists only in a checkout, and restoring it: nothing that a
//! comparison can see is another afterwards. Real git, real files; one table for
//! both strategies.

#[path = "../support/git_fixture.rs"]
mod git_fixture;

mod crash;
mod disk;
mod hostile;
mod limits;
mod picture;
mod purge;
mod restore;
mod work;
mod world;
