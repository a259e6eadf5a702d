//! A disk with less room than is to stay free: what goes by itself is given
//! back first, then preparing is refused until there is room. File systems are
//! mounted, which needs root.

use std::fs;
use std::path::Path;

use crate::full_disk::Small;
use crate::inn::{EVERYTHING, repo};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, World};

/// `take` takes more room below a directory than may be missing.
fn low(options: &str, (key, bound): (&str, u64), take: impl Fn(&Path)) {
    let mut world = World::new(&Config {
        routing: EVERYTHING.into(),
        ..Config::default()
    });
    let small = Small::mount(&world.checkouts(), options);
    let yaml = fs::read_to_string(world.config_file()).expect("read");
    let bounded = yaml.replace(&format!("{key}: 0"), &format!("{key}: {bound}"));
    assert_ne!(bounded, yaml);
    fs::write(world.config_file(), bounded).expect("written");
    let origin = world.origin("acme", "widgets");
    let pulls: Vec<PullRequest> = (1..=3)
        .map(|number| {
            let branch = format!("topic-{number}");
            let head = origin.pull_request(number, &branch);
            PullRequest::new(&repo("acme", "widgets", 7), number, &head).branch(&branch)
        })
        .collect();
    world.start();
    let id = world.accept(&pulls[0].opened());
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");

    let trash = small.0.join(".trash/gone.deleting");
    take(&trash);
    let id = world.accept(&pulls[1].opened());
    world.wait_delivery("workspace.prepared", &id);
    assert!(!trash.exists(), "it was given back first");
    assert!(world.events_named("workspace.prepare_failed").is_empty());

    let ballast = small.0.join("ballast");
    take(&ballast);
    let id = world.accept(&pulls[2].opened());
    let failed = world.wait_delivery("workspace.prepare_failed", &id);
    assert_eq!(failed["code"], "disk_low", "{failed}");
    assert_eq!(failed["retryable"], true);
    assert!(ballast.is_dir(), "it is somebody's");
    let status = world.run(&["status"]);
    assert_eq!(status.status.code(), Some(1), "it is not ready");
    fs::remove_dir_all(&ballast).expect("removed");
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    world.stop();
    world.assert_sequence_is_whole();
    drop(world);
    drop(small);
}

#[test]
fn as_root_with_too_few_bytes_the_trash_goes_before_preparing_is_refused() {
    low("size=64m", ("minFreeBytes", 40 << 20), |dir| {
        fs::create_dir_all(dir).expect("made");
        fs::write(dir.join("ballast"), vec![7; 30 << 20]).expect("written");
    });
}

#[test]
fn as_root_with_too_few_inodes_the_trash_goes_before_preparing_is_refused() {
    low("size=64m,nr_inodes=6000", ("minFreeInodes", 4000), |dir| {
        fs::create_dir_all(dir).expect("made");
        for number in 0..3000 {
            fs::write(dir.join(number.to_string()), "").expect("written");
        }
    });
}
