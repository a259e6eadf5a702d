//! What exists only in a checkout when its item closes: archived, listed, and
//! restored.

use std::path::Path;

use crate::inn::WITH_AGENT;
use crate::support::world::Config;
use crate::work::{
    REFERENCE, Snapshot, archived, json, pull_requests, refused, with_checkout, work_in,
};

#[test]
fn a_dirty_close_is_archived_and_restored_to_what_it_was() {
    for strategy in ["worktree", "clone"] {
        let (mut inn, _, request, checkout) = with_checkout(Config {
            sessions: WITH_AGENT.into(),
            ..pull_requests(&format!("strategy: {strategy}"))
        });
        inn.wait_event("session.exited", 1);
        work_in(&inn, &checkout);
        let before = Snapshot::of(&inn, &checkout);
        let explained = json(&inn, &["explain", REFERENCE]);
        assert_eq!(explained["explained"]["on_close"], "archived");
        let archive = archived(&mut inn, &request, &checkout);

        // Listed, shown with its item, counted.
        let list = inn.ok(&["archive", "list"]);
        let cells: Vec<_> = list.trim_end().split('\t').collect();
        assert_eq!(cells[0], archive);
        assert_eq!(cells[1], "github:forge.example/acme/widgets#1");
        assert_eq!(Path::new(cells[7]), checkout);
        let shown = json(&inn, &["archive", "show", &archive]);
        assert_eq!(
            (&shown["open"], &shown["strategy"]),
            (&false.into(), &strategy.into())
        );
        assert!(shown["expires_at"].is_string(), "{shown}");
        let codes: Vec<_> = shown["reasons"]
            .as_array()
            .expect("reasons")
            .iter()
            .filter_map(|reason| reason["code"].as_str())
            .collect();
        for code in ["untracked", "ignored_precious", "unlanded_commits"] {
            assert!(codes.contains(&code), "{codes:?}");
        }
        assert!(inn.ok(&["archive", "show", &archive]).contains("restore"));
        let status = json(&inn, &["status"]);
        assert_eq!(status["archives"]["count"], 1);
        assert_eq!(status["archives"]["bytes"], shown["bytes"]);
        let item = json(&inn, &["show", REFERENCE]);
        assert_eq!(item["archives"][0]["id"], archive.as_str());
        assert!(inn.ok(&["show", REFERENCE]).contains(&archive));

        let said = inn.ok(&["archive", "restore", &archive]);
        assert!(said.contains(&*checkout.to_string_lossy()), "{said}");
        assert!(said.contains("Nothing differs"), "{said}");
        let told = inn.wait_event("archive.restored", 1);
        assert_eq!(told["archive"], archive.as_str());
        assert_eq!(
            Path::new(told["checkout"].as_str().expect("text")),
            checkout
        );
        assert_eq!(told["work_item"], "github:forge.example/acme/widgets#1");
        assert_eq!(Snapshot::of(&inn, &checkout), before);
        let live = json(&inn, &["list"]);
        assert_eq!(live[0]["state"], "ready");
        assert_eq!(live[0]["on_close"], "archive_work");

        let said = refused(&inn, &["archive", "restore", &archive]);
        assert!(said.contains("has a checkout at"), "{said}");

        // The same session goes on in it; what was there stays.
        let id = inn.done(&request.reopened());
        inn.told("session.resumed", &id);
        assert_eq!(inn.run_of(&id).directory, checkout);
        assert!(inn.told_maybe("workspace.prepared", &id).is_none());
        inn.wait_event("session.exited", 2);
        assert_eq!(Snapshot::of(&inn, &checkout), before);
        assert!(json(&inn, &["archive", "show", &archive])["expires_at"].is_null());
        inn.finish();
    }
}

#[test]
fn an_archive_becomes_a_repository_that_stands_alone_where_the_caller_is() {
    let (mut inn, _, request, checkout) = with_checkout(pull_requests("strategy: worktree"));
    work_in(&inn, &checkout);
    let before = Snapshot::of(&inn, &checkout);
    let archive = archived(&mut inn, &request, &checkout);
    let somewhere = inn.root().join("somewhere");
    std::fs::create_dir(&somewhere).expect("a directory");
    let restore = |to: &str| {
        inn.command()
            .current_dir(&somewhere)
            .args(["archive", "restore", &archive, "--to", to])
            .output()
            .expect("the binary runs")
    };
    let output = restore("rescued");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("Nothing differs"), "{said}");
    let rescued = somewhere.join("rescued");
    assert_eq!(Snapshot::of(&inn, &rescued), before);
    let told = inn.wait_event("archive.restored", 1);
    assert_eq!(Path::new(told["checkout"].as_str().expect("text")), rescued);
    // It is nobody's checkout.
    assert_eq!(inn.ok(&["list"]), "");

    for (to, why) in [
        ("rescued", "rescued"),
        ("../checkouts/mine", "workspace root"),
        (
            "../checkouts/.worktrees/forge.example/mine",
            "workspace root",
        ),
    ] {
        let output = restore(to);
        assert_eq!(output.status.code(), Some(1), "{to}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(why), "{to}: {said}");
    }
    assert_eq!(Snapshot::of(&inn, &rescued), before);
    assert!(!inn.checkouts().join("mine").exists());

    // An id is taken whole; a mistyped one is recognised and not acted upon.
    let mut typo = archive.clone();
    typo.replace_range(30..31, if &archive[30..31] == "0" { "1" } else { "0" });
    for command in ["show", "restore", "purge"] {
        let said = refused(&inn, &["archive", command, &typo]);
        assert!(
            said.contains(&format!("did you mean `{archive}`?")),
            "{said}"
        );
        let said = refused(&inn, &["archive", command, &archive[..20]]);
        assert!(said.contains("no archive"), "{said}");
    }

    let purged = json(&inn, &["archive", "purge", &archive]);
    assert_eq!(purged["purged"]["archive"], archive.as_str());
    assert_eq!(
        inn.wait_event("archive.purged", 1)["archive"],
        archive.as_str()
    );
    assert_eq!(inn.ok(&["archive", "list"]), "");
    assert!(refused(&inn, &["archive", "purge", &archive]).contains("no archive"));
    assert_eq!(Snapshot::of(&inn, &rescued), before);
    inn.finish();
}

#[test]
fn a_restore_that_is_killed_anywhere_stands_in_the_way_of_nothing() {
    for strategy in ["worktree", "clone"] {
        let (mut inn, _, request, checkout) =
            with_checkout(pull_requests(&format!("strategy: {strategy}")));
        work_in(&inn, &checkout);
        let before = Snapshot::of(&inn, &checkout);
        let mut archive = archived(&mut inn, &request, &checkout);
        // The daemon is killed when this is there, or when all is done.
        let stages = [
            inn.checkouts().join(".staging"),
            checkout.clone(),
            checkout.join(".git"),
            checkout.join("README"),
            checkout.join("staged"),
            checkout.join(".env"),
            inn.root().join("never"),
        ];
        for stage in stages {
            let is_there = || {
                std::fs::read_dir(&stage).map_or_else(
                    |_| stage.symlink_metadata().is_ok(),
                    |mut entries| entries.next().is_some(),
                )
            };
            let mut command = inn
                .command()
                .args(["archive", "restore", &archive])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .expect("the binary runs");
            inn.until(&format!("{} is there", stage.display()), || {
                is_there() || command.try_wait().expect("waited").is_some()
            });
            inn.kill();
            let _killed_or_done = command.wait().expect("it ended");

            inn.start();
            inn.until("nothing is half-made", || {
                let live = json(&inn, &["list"]);
                live == serde_json::json!([]) || live[0]["state"] == "ready"
            });
            if json(&inn, &["list"]) == serde_json::json!([]) {
                assert!(!checkout.exists(), "{}: it is left", stage.display());
                inn.ok(&["archive", "restore", &archive]);
            }
            assert_eq!(Snapshot::of(&inn, &checkout), before, "{}", stage.display());

            // What was restored can be archived like anything else.
            inn.ok(&["item", "cleanup", REFERENCE]);
            assert!(!checkout.exists());
            let list = json(&inn, &["archive", "list"]);
            let newest = list[0]["id"].as_str().expect("an id").to_owned();
            assert_ne!(newest, archive);
            inn.ok(&["archive", "purge", &archive]);
            archive = newest;
        }
        assert!(inn.checkouts_left().is_empty());
        inn.finish();
    }
}
