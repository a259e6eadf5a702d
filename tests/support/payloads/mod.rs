//! Deliveries with GitHub's full set of fields, their signature, and a client
//! that posts them.
//!
//! The shapes are GitHub's; every name and number is made up. Whatever a test
//! wants to be odd it changes in [`Payload::body`].

mod issue;
mod other;
mod pull_request;
mod repo;
mod wire;

use serde_json::Value;

pub use issue::Issue;
pub use other::{
    check_suite, ping_of_app, ping_of_organization, ping_of_repository, push, unknown_event,
};
pub use pull_request::{HeadRepo, PullRequest};
pub use repo::{Repo, user};
pub use wire::{Reply, deliver, post, request, signature};

const CREATED: &str = "2026-11-02T09:14:05Z";
const UPDATED: &str = "2026-11-30T12:00:00Z";

/// One delivery, unsigned.
#[derive(Clone, Debug)]
pub struct Payload {
    /// `X-GitHub-Event`.
    pub event: String,
    /// The document.
    pub body: Value,
}

impl Payload {
    pub(super) fn new(event: &str, body: Value) -> Self {
        Self {
            event: event.to_owned(),
            body,
        }
    }

    /// Returns the body as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.body).expect("a JSON value can always be written")
    }

    /// Returns the body as a form: `payload=` and the document, percent-encoded.
    pub fn form_bytes(&self) -> Vec<u8> {
        let mut out = b"payload=".to_vec();
        for byte in self.bytes() {
            match byte {
                b' ' => out.push(b'+'),
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte),
                other => out.extend(format!("%{other:02X}").bytes()),
            }
        }
        out
    }
}
