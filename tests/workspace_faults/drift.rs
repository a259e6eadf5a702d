//! What an agent changes in the shared clone: what could run or redirect is put
//! back and told, the rest stays, and none of it runs.

use super::*;

/// Keys that could run a program or lead elsewhere, and a value for each.
fn harmful(evil: &str) -> Vec<(String, String)> {
    let keys = [
        "core.hooksPath",
        "core.fsmonitor",
        "core.sshCommand",
        "core.gitProxy",
        "core.editor",
        "core.pager",
        "core.askPass",
        "core.alternateRefsCommand",
        "core.attributesFile",
        "core.excludesFile",
        "core.worktree",
        "filter.z.clean",
        "filter.z.smudge",
        "filter.z.process",
        "diff.external",
        "diff.z.textconv",
        "diff.z.command",
        "merge.z.driver",
        "include.path",
        "includeIf.gitdir:/.path",
        "credential.helper",
        "credential.https://x.helper",
        "url.ext::evil.insteadOf",
        "url.ext::evil.pushInsteadOf",
        "alias.st",
        "remote.origin.pushurl",
        "remote.origin.fetch",
        "remote.origin.uploadpack",
        "remote.origin.proxy",
        "remote.other.url",
        "gpg.program",
        "gpg.ssh.program",
        "sequence.editor",
        "uploadpack.packObjectsHook",
        "protocol.ext.allow",
        "gc.pruneExpire",
        "maintenance.auto",
        "extensions.partialClone",
    ];
    keys.into_iter()
        .map(|key| (key.to_owned(), evil.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_that_could_run_or_redirect_is_put_back_and_told_and_nothing_ran() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    world
        .remote
        .commit("main", ".gitattributes", "* filter=z diff=z merge=z\n");
    world.prepare(1, "one").await;
    let config = world.shared().join("config");
    let ours = fs::read_to_string(&config).expect("read");
    let ran = fixture.path().join("ran");
    let evil = fixture.script("evil", &format!("echo x >> {}; cat", ran.display()));
    for (number, (key, value)) in (2..).zip(harmful(&evil.display().to_string())) {
        world.git(
            &fixture.path(),
            &["config", "-f", &config.display().to_string(), &key, &value],
        );
        let made = world.prepare(number, &format!("b{number}")).await;
        assert!(
            made.drift
                .iter()
                .any(|found| found.eq_ignore_ascii_case(&key)),
            "{key}: {:?}",
            made.drift
        );
        assert_eq!(fs::read_to_string(&config).expect("read"), ours, "{key}");
        assert!(!ran.exists(), "{key} ran");
    }
    // One of ours that is taken away comes back.
    world.git(
        &fixture.path(),
        &[
            "config",
            "-f",
            &config.display().to_string(),
            "--unset",
            "gc.auto",
        ],
    );
    let made = world.prepare(90, "unset").await;
    assert_eq!(made.drift, ["gc.auto"]);
    assert_eq!(fs::read_to_string(&config).expect("read"), ours);
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_settings_of_agents_stay() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    for (key, value) in [
        ("user.name", "A \"B\" # C"),
        ("user.email", "a@b"),
        ("branch.topic.remote", "origin"),
        ("branch.topic.merge", "refs/heads/topic"),
        ("remote.origin.gh-resolved", "base"),
        ("pull.rebase", "true"),
        ("color.ui", "auto"),
    ] {
        world.git(&made.record.path, &["config", key, value]);
    }
    for number in 2..4 {
        let next = world.prepare(number, &format!("b{number}")).await;
        assert_eq!(next.drift, [""; 0]);
    }
    let get = |key: &str| world.git(&made.record.path, &["config", key]);
    assert_eq!(get("user.name"), "A \"B\" # C");
    assert_eq!(get("branch.topic.merge"), "refs/heads/topic");
    assert_eq!(get("remote.origin.gh-resolved"), "base");
    assert_eq!(get("pull.rebase"), "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_files_are_set_aside_and_changed_ones_are_put_back() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    let first = world.prepare(1, "one").await;
    let shared = world.shared();
    let ran = fixture.path().join("ran");
    let evil = fixture.script("evil", &format!("echo x >> {}", ran.display()));
    let elsewhere = fixture.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let text = |path: &str| fs::read_to_string(shared.join(path)).expect("read");
    let (alternates, marker) = (text("objects/info/alternates"), text("innkeeper.json"));
    for (number, (name, planted)) in (2..).zip([
        ("hooks/post-checkout", "#!/bin/sh\n"),
        ("info/attributes", "* filter=z\n"),
        ("info/grafts", "0123456789012345678901234567890123456789\n"),
        ("shallow", "0123456789012345678901234567890123456789\n"),
        ("objects/info/http-alternates", "http://x/\n"),
        ("commondir", "/nonexistent\n"),
        ("gitdir", "/nonexistent\n"),
        ("objects/info/alternates", "/nonexistent\n"),
        ("config.worktree", "[core]\n\tbare = false\n"),
        ("innkeeper.json", "{}\n"),
        ("HEAD", "nonsense\n"),
    ]) {
        let path = shared.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        if name.starts_with("hooks") {
            fs::copy(&evil, &path).expect("planted");
        } else {
            fs::write(&path, planted).expect("planted");
        }
        let made = world.prepare(number, &format!("b{number}")).await;
        let top = name.strip_suffix("/post-checkout").unwrap_or(name);
        let frame = ["innkeeper.json"].contains(&top);
        assert!(
            frame || made.drift.iter().any(|found| found == top),
            "{name}: {:?}",
            made.drift
        );
        assert_ne!(
            fs::read_to_string(&path).unwrap_or_default(),
            planted,
            "{name}"
        );
        world.git(
            &first.record.path,
            &["log", "--oneline", "-1", "origin/main"],
        );
    }
    assert_eq!(text("objects/info/alternates"), alternates);
    assert_eq!(text("innkeeper.json"), marker);
    assert_eq!(text("HEAD"), "ref: refs/heads/main\n");
    assert!(!ran.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_looked_for_before_a_checkout_is_moved_as_well() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    world.git(
        &made.record.path,
        &["config", "core.fsmonitor", "/nonexistent"],
    );
    let commit = world.remote.commit("one", "more", "x");
    let updated = world
        .workspace
        .update(
            &made.record,
            &world.remote.target(),
            &git_fixture::wanted(1, &commit, "one"),
            true,
            &CancellationToken::new(),
        )
        .await
        .expect("updated");
    assert!(updated.moved);
    let told = world.told();
    assert_eq!(
        told,
        [LogEvent::SharedCloneDrift {
            keys: vec!["core.fsmonitor".into()]
        }]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_meet_the_same_drift_at_once_all_get_their_checkouts() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    world.prepare(1, "one").await;
    for round in 0..4 {
        let hooks = world.shared().join("hooks");
        fs::create_dir(&hooks).expect("made");
        fs::write(world.shared().join("info/attributes"), "* filter=z\n").expect("planted");
        let config = world.shared().join("config").display().to_string();
        world.git(
            &fixture.path(),
            &["config", "-f", &config, "alias.x", "!evil"],
        );
        let pulls: Vec<_> = (0..6)
            .map(|n| {
                let number = 100 + round * 10 + n;
                (
                    number,
                    world.remote.open_pull(number, &format!("b{number}")).0,
                )
            })
            .collect();
        let all = pulls
            .iter()
            .map(|(number, wanted)| world.try_prepare(*number, wanted, Strategy::Worktree));
        for made in futures_all(all).await {
            made.expect("prepared");
        }
        assert!(!hooks.exists());
    }
}

/// Waits for all of them, side by side.
async fn futures_all<F: std::future::Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (one, done) in &mut waiting {
            if done.is_none()
                && let std::task::Poll::Ready(outcome) = one.as_mut().poll(context)
            {
                *done = Some(outcome);
            }
        }
        if waiting.iter().all(|(_, done)| done.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_looked_for_at_start() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    world.git(&made.record.path, &["config", "alias.st", "!evil"]);
    world.reopen().await;
    let told = world.told();
    assert_eq!(
        told,
        [LogEvent::SharedCloneDrift {
            keys: vec!["alias.st".into()]
        }]
    );
}
