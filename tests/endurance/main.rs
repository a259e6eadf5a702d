//! The random campaign: deliveries, agents that write in the checkouts, kills at
//! random moments and at named points, removals, restores, directories that are
//! moved away and back, against a real daemon. A model knows every byte that an
//! agent wrote last, and finds each in place, in an archive, or on the remote.
//!
//! Here a short form runs; `tests/campaign` runs the long one.

// It uses a part of what the tests of crashes share.
#[allow(dead_code)]
#[path = "../daemon_crash/inn.rs"]
mod inn;
#[path = "../support/mod.rs"]
mod support;

mod agent;
mod campaign;
mod item;
mod log;
mod random;
mod snapshot;

use std::time::Duration;

use campaign::{Campaign, Scale};

fn setting(name: &str, otherwise: u64) -> u64 {
    let name = format!("INNKEEPER_CAMPAIGN_{name}");
    std::env::var(&name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}"))
    })
}

#[test]
fn the_campaign() {
    let minutes = setting("MINUTES", 0);
    let scale = Scale {
        seed: setting("SEED", 20),
        items: setting("ITEMS", 10),
        repos: setting("REPOS", 2),
        time: if minutes == 0 {
            Duration::from_secs(25)
        } else {
            Duration::from_secs(minutes * 60)
        },
    };
    Campaign::new(scale).run();
}
