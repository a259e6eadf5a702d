//! The daemon against kills, slow remotes, crowds and full disks: what was
//! answered with 202 has its effect once, and nothing is left over.
//!
//! `INNKEEPER_TEST_ROUNDS=N` runs what is repeated N times instead of a few.

#[path = "../support/mod.rs"]
mod support;

mod burst;
mod closing;
mod crowd;
mod full_disk;
mod inn;
mod life;
mod low_disk;
mod operations;
mod outlive;
mod points;
