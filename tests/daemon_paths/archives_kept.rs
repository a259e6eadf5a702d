//! Where archives are, for how long, and what has none.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::inn::{Inn, Transport, widgets};
use crate::support::payloads::PullRequest;
use crate::support::world::Config;
use crate::work::{
    REFERENCE, Snapshot, archived, json, pull_requests, refused, with_checkout, work_in,
};

#[test]
fn work_is_kept_where_it_is_if_that_is_configured_and_judged_at_every_event() {
    let keep = "removal: { onDirty: keep }";
    let (mut inn, _, request, checkout) = with_checkout(pull_requests(keep));
    std::fs::write(checkout.join("mine"), "mine\n").expect("a file");
    let explained = json(&inn, &["explain", REFERENCE]);
    assert_eq!(explained["explained"]["on_close"], "kept");
    assert_eq!(
        inn.kept(&request.closed_unmerged(), &checkout),
        ["untracked"]
    );
    let said = refused(&inn, &["item", "cleanup", REFERENCE]);
    assert!(said.contains("untracked (1)"), "{said}");
    assert!(said.contains("--discard-changes"), "{said}");

    // Whoever says whatever: it is looked at.
    for (who, association, text) in [
        ("alice", "MEMBER", "/innkeeper pause"),
        ("alice", "MEMBER", "/innkeeper status"),
        ("eve", "NONE", "/innkeeper start"),
        ("helper[bot]", "NONE", "Beep."),
    ] {
        let kept = inn.kept(&request.commented(who, association, text), &checkout);
        assert_eq!(kept, ["untracked"], "{who}: {text}");
    }
    assert!(inn.events_named("archive.created").is_empty());
    std::fs::remove_file(checkout.join("mine")).expect("removed");
    let stop = request.commented("eve", "NONE", "/innkeeper stop");
    inn.cleaned(&stop, &checkout);
    inn.finish();
}

#[test]
fn what_a_kept_checkout_pushes_late_has_it_removed() {
    let keep = "removal: { onDirty: keep }";
    let (mut inn, _, request, checkout) = with_checkout(pull_requests(keep));
    std::fs::write(checkout.join("mine"), "mine\n").expect("a file");
    inn.git(&checkout, &["add", "--all"]);
    inn.git(&checkout, &["commit", "--quiet", "-m", "mine"]);
    assert_eq!(
        inn.kept(&request.closed_unmerged(), &checkout),
        ["unlanded_commits"]
    );
    let before = inn.git(&checkout, &["rev-parse", "HEAD~1"]);
    inn.git(&checkout, &["push", "--quiet"]);
    let pushed = inn.head(&checkout);
    inn.cleaned(&request.at(&pushed).synchronize(&before), &checkout);
    inn.finish();
}

#[test]
fn what_is_too_big_for_an_archive_is_kept() {
    let (mut inn, _, request, checkout) =
        with_checkout(pull_requests("removal: { archiveMaxBytes: 4000 }"));
    // Nothing that could be made smaller.
    let noise: Vec<u8> = (0_u32..400)
        .flat_map(|n| Sha256::digest(n.to_le_bytes()).to_vec())
        .collect();
    std::fs::write(checkout.join("noise"), &noise).expect("a file");
    let reasons = inn.kept(&request.closed_unmerged(), &checkout);
    assert!(reasons.contains(&"untracked".to_owned()), "{reasons:?}");
    assert!(
        reasons.contains(&"archive_too_big".to_owned()),
        "{reasons:?}"
    );
    assert_eq!(std::fs::read(checkout.join("noise")).expect("read"), noise);
    assert_eq!(inn.ok(&["archive", "list"]), "");
    inn.finish();
}

#[test]
fn archives_below_an_earlier_root_are_still_there() {
    let (mut inn, _, request, checkout) = with_checkout(pull_requests(""));
    work_in(&inn, &checkout);
    let before = Snapshot::of(&inn, &checkout);
    let archive = archived(&mut inn, &request, &checkout);
    inn.reload(Config {
        root: Some("elsewhere".into()),
        ..pull_requests("")
    });
    inn.stop();
    inn.start();
    assert!(inn.ok(&["archive", "list"]).starts_with(&archive));
    inn.ok(&["archive", "restore", &archive]);
    assert_eq!(Snapshot::of(&inn, &checkout), before);
    assert_eq!(
        json(&inn, &["list"])[0]["path"],
        *checkout.to_string_lossy()
    );
    inn.finish();
}

#[test]
fn a_root_may_be_reached_through_a_link() {
    let mut inn = Inn::with(
        Transport::File,
        Config {
            root: Some("link".into()),
            ..pull_requests("")
        },
    );
    std::fs::create_dir(inn.root().join("real")).expect("a directory");
    std::os::unix::fs::symlink("real", inn.root().join("link")).expect("a link");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    assert!(checkout.starts_with(inn.root().join("real")));
    inn.stop();
    inn.start();
    work_in(&inn, &checkout);
    let before = Snapshot::of(&inn, &checkout);
    let archive = archived(&mut inn, &request, &checkout);
    let listed = inn.ok(&["archive", "list"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let rescued = inn.root().join("link/rescued");
    let to = rescued.to_str().expect("text");
    let said = refused(&inn, &["archive", "restore", &archive, "--to", to]);
    assert!(said.contains("workspace root"), "{said}");
    inn.ok(&["archive", "restore", &archive]);
    assert_eq!(Snapshot::of(&inn, &checkout), before);
    inn.finish();
}

#[test]
fn an_archive_that_cannot_be_read_is_told_of_and_can_be_deleted() {
    let (mut inn, _, request, checkout) = with_checkout(pull_requests(""));
    std::fs::write(checkout.join("mine"), "mine\n").expect("a file");
    let archive = archived(&mut inn, &request, &checkout);
    let slug = checkout.file_name().expect("a slug");
    let dir = inn.checkouts().join(".archive").join(slug).join(&archive);
    let manifest = std::fs::read(dir.join("manifest.json")).expect("a manifest");
    let mut bytes = manifest.clone();
    bytes[10] ^= 1;
    std::fs::write(dir.join("manifest.json"), bytes).expect("written");
    for arguments in [
        &["archive", "show", &archive][..],
        &["archive", "restore", &archive],
    ] {
        let said = refused(&inn, arguments);
        assert!(said.contains("cannot be used"), "{said}");
    }
    assert!(dir.exists());
    std::fs::write(dir.join("manifest.json"), manifest).expect("written");
    assert!(inn.ok(&["archive", "show", &archive]).contains(&archive));

    std::fs::write(dir.join("manifest.json"), "{}").expect("written");
    inn.ok(&["archive", "purge", &archive]);
    assert!(!dir.exists());
    inn.finish();
}

/// Makes everything that is remembered this many days older. No daemon runs.
fn grow_older(inn: &Inn, days: i64) {
    let ms = days * 86_400_000;
    let database = inn.state().join("innkeeper.db");
    let store = rusqlite::Connection::open(database).expect("the state");
    store
        .execute("UPDATE items SET updated_at = updated_at - ?1", [ms])
        .expect("items grow older");
    for slug in std::fs::read_dir(inn.checkouts().join(".archive")).expect("archives") {
        for archive in std::fs::read_dir(slug.expect("a slug").path()).expect("archives") {
            let dir = archive.expect("an archive").path();
            let file = dir.join("manifest.json");
            let text = std::fs::read(&file).expect("a manifest");
            let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
            let made = &mut manifest["summary"]["created_at"];
            *made = (made.as_i64().expect("a time") - ms).into();
            let text = serde_json::to_vec(&manifest).expect("JSON");
            let sum = format!("{}  manifest.json\n", hex::encode(Sha256::digest(&text)));
            std::fs::write(&file, &text).expect("written");
            std::fs::write(dir.join("manifest.sha256"), sum).expect("written");
        }
    }
}

#[test]
fn an_archive_goes_after_its_days_but_never_while_its_item_is_open() {
    let (mut inn, origin, first, checkout) = with_checkout(pull_requests(""));
    std::fs::write(checkout.join("mine"), "one\n").expect("a file");
    let of_first = archived(&mut inn, &first, &checkout);

    let head = origin.pull_request(2, "other");
    let second = PullRequest::new(&widgets(), 2, &head).branch("other");
    let (checkout, _) = inn.prepared(&second.opened());
    std::fs::write(checkout.join("mine"), "two\n").expect("a file");
    let of_second = archived(&mut inn, &second, &checkout);
    let (checkout, _) = inn.prepared(&second.reopened());
    assert!(!checkout.join("mine").exists());

    let ids = |inn: &Inn| -> Vec<String> {
        let list = json(inn, &["archive", "list"]);
        let list = list.as_array().expect("a list").iter();
        list.map(|one| one["id"].as_str().expect("an id").to_owned())
            .collect()
    };
    // Not yet.
    inn.stop();
    grow_older(&inn, 29);
    inn.start();
    inn.stop();
    inn.start();
    assert_eq!(ids(&inn), [of_second.as_str(), of_first.as_str()]);

    // Of the closed one, and not of the one that is open again.
    inn.stop();
    grow_older(&inn, 2);
    inn.start();
    let purged = inn.wait_event("archive.purged", 1);
    assert_eq!(purged["archive"], of_first.as_str());
    assert_eq!(purged["work_item"], "github:forge.example/acme/widgets#1");
    assert!(purged["bytes"].as_u64().expect("bytes") > 0);
    inn.stop();
    inn.start();
    assert_eq!(ids(&inn), [of_second.as_str()]);

    // Once that is closed it has its days again, and then goes as well; at a
    // reload too.
    inn.cleaned(&second.closed_merged(), &checkout);
    inn.stop();
    grow_older(&inn, 20);
    inn.start();
    inn.stop();
    inn.start();
    assert_eq!(ids(&inn), [of_second.as_str()]);
    inn.reload(pull_requests("removal: { archiveDays: 20 }"));
    let purged = inn.wait_event("archive.purged", 2);
    assert_eq!(purged["archive"], of_second.as_str());
    assert!(ids(&inn).is_empty());
    inn.finish();
}
