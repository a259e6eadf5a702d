//! What an operator does to a daemon: stopping it in the middle, starting a
//! second one, changing its configuration, following its log.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::inn::{EVERYTHING, of_delivery, repo, signal};
use crate::support::http_git::{HttpGit, Manner};
use crate::support::payloads::{Payload, PullRequest, deliver};
use crate::support::world::{Config, SECRET, World};

fn opened(world: &World, numbers: std::ops::RangeInclusive<u64>) -> Vec<Payload> {
    let origin = world.origin("acme", "widgets");
    numbers
        .map(|number| {
            let branch = format!("topic-{number}");
            let head = origin.pull_request(number, &branch);
            PullRequest::new(&repo("acme", "widgets", 7), number, &head)
                .branch(&branch)
                .opened()
        })
        .collect()
}

fn every_request() -> Config {
    Config {
        routing: EVERYTHING.into(),
        ..Config::default()
    }
}

#[test]
fn a_stop_in_the_middle_of_a_burst_loses_nothing() {
    let mut world = World::new(&every_request());
    let payloads = opened(&world, 1..=30);
    world.start();
    let (address, pid) = (world.webhooks(), world.pid());
    let accepted: Vec<usize> = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut accepted = Vec::new();
            for (index, payload) in payloads.iter().enumerate() {
                if index == 10 {
                    signal(pid, "TERM");
                }
                let id = format!("stop-{index}");
                match deliver(address, "/webhooks/github", SECRET.as_bytes(), &id, payload) {
                    Ok(reply) if reply.status == 202 => accepted.push(index),
                    Ok(reply) => assert_eq!(reply.status, 503, "{id}"),
                    Err(_) => {}
                }
            }
            accepted
        });
        sender.join().expect("it sends")
    });
    world.stop_signalled();
    assert!(accepted.len() >= 10, "{accepted:?}");
    world.start();
    for index in &accepted {
        let over = world.wait_over(&format!("stop-{index}"));
        assert_eq!(over["event"], "delivery.done", "{over}");
    }
    let events = world.events();
    assert_eq!(
        events
            .iter()
            .filter(|told| told["event"] == "webhook.received")
            .count(),
        accepted.len()
    );
    for index in &accepted {
        let prepared = of_delivery(&events, &format!("stop-{index}"), &["workspace.prepared"]);
        assert_eq!(prepared.len(), 1, "{prepared:?}");
    }
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn what_was_accepted_before_a_restart_is_a_duplicate_after_it() {
    let mut world = World::new(&every_request());
    let payload = opened(&world, 1..=1).remove(0);
    world.start();
    assert_eq!(
        world.deliver_as("the-one", &payload).json()["status"],
        "accepted"
    );
    assert_eq!(
        world.deliver_as("the-one", &payload).json()["status"],
        "duplicate"
    );
    world.wait_over("the-one");
    for graceful in [true, false] {
        if graceful {
            world.stop();
        } else {
            world.kill();
        }
        world.start();
        let reply = world.deliver_as("the-one", &payload);
        assert_eq!(
            (reply.status, reply.json()["status"].as_str()),
            (202, Some("duplicate"))
        );
    }
    world.stop();
    let events = world.events();
    assert_eq!(
        of_delivery(&events, "the-one", &["webhook.received"]).len(),
        1
    );
    assert_eq!(
        of_delivery(&events, "the-one", &["workspace.prepared"]).len(),
        1
    );
    world.assert_sequence_is_whole();
}

#[test]
fn a_second_daemon_on_the_same_state_or_root_is_refused_and_names_the_holder() {
    let mut world = World::new(&every_request());
    world.start();
    let holder = world.pid().to_string();
    let refused = |world: &World| {
        let output = world.run(&["serve"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&holder), "names process {holder}: {said}");
        said
    };
    let said = refused(&world);
    assert!(
        said.contains(&world.state().display().to_string()),
        "{said}"
    );
    let yaml = std::fs::read_to_string(world.config_file()).expect("a configuration");
    let other = world.root().join("other.yaml");
    std::fs::write(&other, yaml.replace("root: state", "root: other-state")).expect("written");
    let output = world
        .command()
        .env("INNKEEPER_CONFIG", &other)
        .arg("serve")
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&holder) && said.contains(&world.checkouts().display().to_string()),
        "{said}"
    );
    // The one that runs is not disturbed.
    let id = {
        let payload = opened(&world, 1..=1).remove(0);
        world.accept(&payload)
    };
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    world.stop();
}

#[test]
fn a_delivery_that_brings_the_daemon_down_five_times_alone_is_parked() {
    let mut world = World::new(&Config::default());
    let server = HttpGit::serve(&world.origins());
    world.configure(&Config {
        clone_url: Some(server.template()),
        other: format!(
            "notify: {{ command: [/bin/sh, -c, 'cat >>{}/notices'], on: [delivery.parked] }}",
            world.root().display()
        ),
        ..every_request()
    });
    let payloads = opened(&world, 1..=2);
    server.set_manner(Manner::Silent);
    world.start();
    let id = world.accept(&payloads[0]);
    for crash in 1..=5 {
        server.await_requests(crash, Duration::from_secs(60));
        world.kill();
        world.start();
    }
    let over = world.wait_over(&id);
    assert_eq!(
        (over["event"].as_str(), over["code"].as_str()),
        (Some("delivery.parked"), Some("interrupted"))
    );
    assert!(
        over["error"]
            .as_str()
            .is_some_and(|error| !error.is_empty()),
        "{over}"
    );
    server.set_manner(Manner::Prompt);
    // Others are not held up, and the notice of a parked delivery comes out.
    let other = world.accept(&payloads[1]);
    assert_eq!(world.wait_over(&other)["event"], "delivery.done");
    let notices = world.root().join("notices");
    let broken = {
        let mut payload = payloads[1].clone();
        payload.body = Value::from("a text");
        world.accept(&payload)
    };
    assert_eq!(world.wait_over(&broken)["code"], "bad_payload");
    world.until("the notice", || {
        std::fs::read_to_string(&notices).is_ok_and(|text| text.contains(&broken))
    });
    let text = std::fs::read_to_string(&notices).expect("notices");
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("a notice is an event");
        assert_eq!(event["event"], "delivery.parked");
    }
    // Taken up again by a person it has its effect.
    world.ok(&["deliveries", "replay", &id]);
    world.wait_delivery("workspace.prepared", &id);
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_changed_configuration_is_taken_up_and_a_broken_one_changes_nothing() {
    let mut world = World::new(&Config::default());
    let payloads = opened(&world, 1..=4);
    world.start();
    let dropped = world.accept(&payloads[0]);
    assert_eq!(world.wait_over(&dropped)["event"], "delivery.dropped");

    world.configure(&every_request());
    world.wait_event("config.reloaded", 1);
    let started = world.accept(&payloads[1]);
    assert_eq!(world.wait_over(&started)["event"], "delivery.done");

    let good = std::fs::read_to_string(world.config_file()).expect("a configuration");
    std::fs::write(world.config_file(), good.replace("routing:", "rooting:")).expect("written");
    let rejected = world.wait_event("config.rejected", 1);
    assert!(rejected.to_string().contains("rooting"), "{rejected}");
    let still = world.accept(&payloads[2]);
    assert_eq!(world.wait_over(&still)["event"], "delivery.done");

    world.signal("HUP");
    world.wait_event("config.rejected", 2);
    let better = good.replace("routing:", "routing:\n  maxAttempts: 5");
    std::fs::write(world.config_file(), better).expect("written");
    world.signal("HUP");
    world.wait_event("config.reloaded", 2);
    let again = world.accept(&payloads[3]);
    assert_eq!(world.wait_over(&again)["event"], "delivery.done");
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn following_the_log_goes_on_through_a_restart() {
    let mut world = World::new(&every_request());
    let payloads = opened(&world, 1..=3);
    world.start();
    let mut follower = world
        .command()
        .args(["events", "--follow", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let lines = BufReader::new(follower.stdout.take().expect("piped"));
    let (sender, seen) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut deliveries = Vec::new();
    for (payload, kill) in payloads.iter().zip([true, false, true]) {
        deliveries.push(world.accept(payload));
        world.wait_over(deliveries.last().expect("pushed"));
        if kill {
            world.kill();
        } else {
            world.stop();
        }
        world.start();
    }
    let last = world.wait_event("reconcile.finished", 4)["seq"]
        .as_u64()
        .expect("a number");
    let mut numbers = Vec::new();
    let mut done = Vec::new();
    while numbers.last().is_none_or(|number| *number < last) {
        let line = seen
            .recv_timeout(Duration::from_secs(60))
            .expect("the follower goes on");
        let event: Value = serde_json::from_str(&line).expect("a line is an event");
        numbers.push(event["seq"].as_u64().expect("a number"));
        if event["event"] == "delivery.done" {
            done.push(event["delivery"].as_str().expect("an id").to_owned());
        }
    }
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    assert_eq!(done, deliveries);
    follower.kill().expect("it can be killed");
    follower.wait().expect("it ended");
    reader.join().expect("it read");
    world.stop();
}
