//! What several test binaries need: payloads as GitHub sends them, and remotes
//! that git can really fetch from.

// Each test binary uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod http_git;
pub mod payloads;
pub mod world;
