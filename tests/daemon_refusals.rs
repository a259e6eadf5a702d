//! Bad input, bad surroundings and refusals, against the built binary: each has
//! a clear message and the right status or exit code, and loses nothing.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use support::payloads::{Payload, PullRequest, Reply, Repo, post, request, signature};
use support::world::{Config, HOST, PATIENCE, SECRET, World};

const PATH: &str = "/webhooks/github";

/// What a request is, the status it gets, its headers, its body.
type Case<'a> = (&'a str, u16, &'a [(&'a str, &'a str)], &'a [u8]);

fn repo() -> Repo {
    Repo::new("acme", "widgets", 7).on(HOST)
}

fn every_pull_request() -> Config {
    Config {
        routing: "rules:\n  - { name: all, when: { event: pull_request }, then: start }".into(),
        ..Config::default()
    }
}

/// Runs `serve`, which has to end by itself; returns its exit code and what it
/// said on standard error.
fn serve(world: &World, change: impl FnOnce(&mut Command)) -> (i32, String) {
    let told = world.root().join("refused.log");
    let mut command = world.command();
    command
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&told).expect("a file"));
    change(&mut command);
    let mut child = command.spawn().expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("it can be killed");
            child.wait().expect("it ended");
            panic!("the daemon runs although it must not");
        }
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    };
    let text = std::fs::read_to_string(told).expect("text");
    (status.code().expect("it was not killed"), text)
}

/// Checks an exit code and that a message says all of this.
#[track_caller]
fn assert_told((code, text): &(i32, String), expected: i32, parts: &[&str]) {
    assert_eq!(*code, expected, "{text}");
    for part in parts {
        assert!(text.contains(part), "it does not say `{part}`:\n{text}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert_eq!(
        text.matches("error:").count(),
        1,
        "one error, told once:\n{text}"
    );
}

/// Posts with these headers and a body that is signed with the right secret.
fn signed(world: &World, event: &str, delivery: &str, body: &[u8]) -> Reply {
    post(
        world.webhooks(),
        PATH,
        &[
            ("Content-Type", "application/json"),
            ("X-GitHub-Event", event),
            ("X-GitHub-Delivery", delivery),
            ("X-Hub-Signature-256", &signature(SECRET.as_bytes(), body)),
        ],
        body,
    )
    .expect("the listener answers")
}

/// Returns everything below a directory, as paths relative to it.
fn everything_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path.clone());
            }
            found.push(path.strip_prefix(dir).expect("below it").to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn a_request_that_is_refused_gets_its_status_and_leaves_nothing_but_its_reason() {
    let mut world = World::new(&every_pull_request());
    world.start();
    let body = br#"{"zen":"Anything added dilutes everything else."}"#;
    let good = signature(SECRET.as_bytes(), body);
    let other = signature(b"another secret", body);
    let json = ("Content-Type", "application/json");
    let event = ("X-GitHub-Event", "ping");
    let id = ("X-GitHub-Delivery", "d-1");
    let sign = ("X-Hub-Signature-256", good.as_str());
    let large = vec![b' '; 26 * 1024 * 1024];
    let of_large = signature(SECRET.as_bytes(), &large);
    let cases: &[Case<'_>] = &[
        (
            "a wrong signature",
            401,
            &[json, event, id, ("X-Hub-Signature-256", &other)],
            body,
        ),
        ("no signature", 401, &[json, event, id], body),
        (
            "only the old signature",
            401,
            &[json, event, id, ("X-Hub-Signature", "sha1=00")],
            body,
        ),
        (
            "a signature of another body",
            401,
            &[json, event, id, sign],
            b"{}",
        ),
        (
            "two signatures, one of them good",
            401,
            &[json, event, id, ("X-Hub-Signature-256", &other), sign],
            body,
        ),
        ("no event", 400, &[json, id, sign], body),
        ("no delivery", 400, &[json, event, sign], body),
        ("two events", 400, &[json, event, event, id, sign], body),
        ("two deliveries", 400, &[json, event, id, id, sign], body),
        (
            "26 MiB",
            413,
            &[json, event, id, ("X-Hub-Signature-256", &of_large)],
            &large,
        ),
        (
            "text",
            415,
            &[("Content-Type", "text/plain"), event, id, sign],
            body,
        ),
        ("no type", 415, &[event, id, sign], body),
    ];
    let mut wrong = Vec::new();
    for (what, status, headers, body) in cases {
        let reply = post(world.webhooks(), PATH, headers, body).expect("an answer");
        if reply.status != *status {
            wrong.push(format!("{what}: {}, not {status}", reply.status));
        }
        let error = &reply.json()["error"];
        if !error["code"].is_string() || !error["message"].is_string() {
            wrong.push(format!("{what}: {error} is no error"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let get = request(world.webhooks(), "GET", PATH, &[], b"").expect("an answer");
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    let nowhere = post(
        world.webhooks(),
        "/webhooks/gitea",
        &[json, event, id, sign],
        body,
    );
    assert_eq!(nowhere.expect("an answer").status, 404);
    world.wait("the refusals in the log", |events| {
        events
            .iter()
            .any(|told| told["event"] == "webhook.rejected" && told["reason"].is_string())
            .then_some(())
    });
    assert_eq!(world.events_named("webhook.received"), Vec::<Value>::new());
    assert_eq!(world.ok(&["deliveries", "list"]), "");

    // The same id is not spoilt for the real delivery.
    let reply = signed(&world, "ping", "d-1", body);
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (202, &json!("accepted"))
    );
    assert_eq!(world.wait_over("d-1")["reason"], "ping");
}

#[test]
fn what_is_signed_but_not_understood_is_kept_and_can_be_replayed() {
    let mut world = World::new(&every_pull_request());
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    for (id, body) in [
        ("broken", &b"{\"action\": \"opened\""[..]),
        ("no-object", b"[1, 2]"),
        ("empty", b""),
        ("no-text", b"\xff\xfe\x00"),
    ] {
        assert_eq!(signed(&world, "pull_request", id, body).status, 202, "{id}");
        let over = world.wait_over(id);
        assert_eq!(
            (&over["event"], &over["code"]),
            (&json!("delivery.parked"), &json!("bad_payload")),
            "{id}: {over}"
        );
    }
    let told = world.ok(&["deliveries", "show", "broken", "--payload"]);
    assert!(
        told.contains("bad_payload") && told.contains(r#"{"action": "opened""#),
        "{told}"
    );
    let listed = world.ok(&["deliveries", "list", "--state", "parked"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    world.ok(&["deliveries", "replay", "broken"]);
    world.wait("it to be parked again", |events| {
        let again = events
            .iter()
            .filter(|told| told["event"] == "delivery.parked" && told["delivery"] == "broken");
        (again.count() == 2).then_some(())
    });
    for (id, event, body, reason) in [
        (
            "unknown",
            "moon_phase",
            json!({ "repository": repo().value() }),
            "event-not-handled",
        ),
        (
            "nothing",
            "pull_request",
            json!({ "action": "opened" }),
            "no-work-item",
        ),
    ] {
        let bytes = serde_json::to_vec(&body).expect("JSON");
        assert_eq!(signed(&world, event, id, &bytes).status, 202);
        assert_eq!(world.wait_over(id)["reason"], reason);
    }

    // What had its effect is not done again unless one insists.
    let id = world.accept(&PullRequest::new(&repo(), 1, &head).branch("topic").opened());
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    let refused = world.run(&["deliveries", "replay", &id]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("--force"), "{text}");
    world.ok(&["deliveries", "replay", &id, "--force"]);
    world.wait("it to be done again", |events| {
        let again = events
            .iter()
            .filter(|told| told["event"] == "delivery.done" && told["delivery"] == id);
        (again.count() == 2).then_some(())
    });
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn hostile_names_and_refs_reach_neither_a_path_nor_an_argument() {
    let mut world = World::new(&every_pull_request());
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    let opened = |number: u64, patch: &dyn Fn(&mut Value)| -> Payload {
        let mut payload = PullRequest::new(&repo(), number, &head)
            .branch("topic")
            .opened();
        patch(&mut payload.body);
        payload
    };
    // A repository by name only, so that nothing else can be used instead.
    let named = |full: &str| {
        let full = full.to_owned();
        move |body: &mut Value| {
            body["repository"] = json!({ "id": 7, "full_name": full });
        }
    };
    for name in [
        "../../outside",
        "..//outside",
        "acme/..",
        "acme/.git",
        "acme/widgets/../../outside",
        "-acme/widgets",
        "acme/-widgets",
        "acme/--upload-pack=touch outside",
        "acme/wid gets",
        "acme/wid\ngets",
        "acme/wid\u{0}gets",
        "acme\\..\\outside",
        "/etc/passwd",
        "acme/\u{202e}stegdiw",
        "acme",
    ] {
        let id = world.accept(&opened(1, &named(name)));
        let over = world.wait_over(&id);
        assert!(
            over["reason"] == "repository-not-allowed" || over["reason"] == "no-work-item",
            "{name:?}: {over}"
        );
    }
    for host in [
        "https://elsewhere.example/acme/widgets",
        "https://169.254.169.254/acme/widgets",
    ] {
        let id = world.accept(&opened(1, &|body| {
            body["repository"] = json!({ "id": 7, "full_name": "acme/widgets", "html_url": host });
        }));
        assert_eq!(
            world.wait_over(&id)["reason"],
            "repository-not-allowed",
            "{host}"
        );
    }
    assert_eq!(world.ok(&["list"]), "", "nothing was prepared");

    // A branch that git would not take is refused before git sees it.
    for (number, branch) in [
        (2, "--upload-pack=touch outside"),
        (3, "../../../outside"),
        (4, "a..b"),
        (5, "x\u{1b}[31m"),
        (6, "refs/heads/main:refs/heads/main"),
        (7, "@{-1}"),
        (8, "a.lock"),
    ] {
        origin.set_pull(number, &head);
        let id = world.accept(&opened(number, &|body| {
            body["pull_request"]["head"]["ref"] = json!(branch);
        }));
        let over = world.wait_over(&id);
        assert_eq!(
            (&over["event"], &over["code"]),
            (&json!("delivery.parked"), &json!("bad_input")),
            "{branch}: {over}"
        );
    }
    // A commit that is none is not handed to git.
    for commit in ["-x", "--output=outside", "HEAD", "main", "../x"] {
        let id = world.accept(&opened(9, &|body| {
            body["pull_request"]["head"]["sha"] = json!(commit);
        }));
        let over = world.wait_over(&id);
        let prepared = world.events_named("workspace.prepared");
        assert!(
            over["event"] == "delivery.parked"
                || prepared
                    .iter()
                    .filter(|told| told["delivery"] == id)
                    .all(|told| told["commit"] == head),
            "{commit}: {over}"
        );
    }
    let outside: Vec<_> = everything_below(world.root())
        .into_iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains("outside"))
        })
        .collect();
    assert_eq!(outside, Vec::<PathBuf>::new());
    // What a stranger wrote cannot steer the operator's terminal.
    let listed = world.ok(&["list"]);
    assert!(!listed.contains('\u{1b}'), "{listed:?}");
}

#[test]
fn a_configuration_with_an_error_is_refused_with_its_place_and_ends_with_2() {
    let world = World::new(&Config::default());
    let file = world.config_file();
    let good = std::fs::read_to_string(&file).expect("the configuration");
    let shown = file.display().to_string();
    for (what, from, to, parts) in [
        (
            "an unknown key",
            "root: state }",
            "root: state, rot: x }",
            &["state.rot", ":1:", "root"][..],
        ),
        (
            "a wrong type",
            "port: 0",
            "port: none",
            &["webhooks.github.port", ":2:"],
        ),
        (
            "a key twice",
            "port: 0",
            "port: 0, port: 1",
            &["port", ":2:"],
        ),
        (
            "out of range",
            "port: 0",
            "port: 70000",
            &["webhooks.github.port", ":2:", "65535"],
        ),
        ("no YAML", "port: 0", "port: [", &[":"]),
        (
            "a reference to nothing",
            "killGraceSeconds: 2",
            "default: ghost",
            &["sessions.default", "ghost"],
        ),
        (
            "a placeholder",
            "killGraceSeconds: 2",
            "profiles: { a: { start: [x, '{promt}'] } }",
            &["sessions.profiles.a.start", "{promt}", "{prompt}"],
        ),
        (
            "unsigned beyond loopback",
            "port: 0",
            "port: 0, host: 0.0.0.0, allowUnsigned: true",
            &["webhooks.github.allowUnsigned"],
        ),
        (
            "a template",
            "killGraceSeconds: 2",
            "profiles: { a: { start: [x], prompt: '{{ unclosed' } }",
            &["sessions.profiles.a.prompt"],
        ),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&file, good.replacen(from, to, 1)).expect("written");
        for command in ["serve", "check"] {
            let told = if command == "serve" {
                serve(&world, |_| {})
            } else {
                let output = world.run(&["config", "check"]);
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                (output.status.code().expect("a code"), text)
            };
            assert_eq!(told.0, 2, "{what}, {command}: {}", told.1);
            for part in parts.iter().chain([&shown.as_str()]) {
                assert!(
                    told.1.contains(part),
                    "{what}, {command}: it does not say `{part}`:\n{}",
                    told.1
                );
            }
        }
    }
    assert!(!world.state().exists(), "nothing was begun");
}

#[test]
fn without_a_secret_the_daemon_does_not_start() {
    let world = World::new(&Config::default());
    let told = serve(&world, |command| {
        command.env_remove("TEST_WEBHOOK_SECRET");
    });
    assert_told(&told, 2, &["there is no webhook secret", "secretEnv"]);
    let told = serve(&world, |command| {
        command.env("TEST_WEBHOOK_SECRET", "");
    });
    assert_told(&told, 2, &["TEST_WEBHOOK_SECRET", "empty"]);
    // A check is not a start: the variable may well be set for the daemon.
    let output = world
        .command()
        .args(["config", "check"])
        .env_remove("TEST_WEBHOOK_SECRET")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("TEST_WEBHOOK_SECRET"), "{text}");
}

#[test]
fn without_git_or_with_an_old_one_the_daemon_does_not_start() {
    let world = World::new(&Config::default());
    let bin = world.root().join("bin");
    let told = serve(&world, |command| {
        command.env("PATH", &bin);
    });
    assert_told(
        &told,
        1,
        &["`git`", "No such file", "routing.workspace.gitBinary"],
    );
    let old = bin.join("git");
    std::fs::write(
        &old,
        "#!/bin/sh\nfor argument; do\n  [ \"$argument\" = version ] && echo git version 2.30.0 && exit\ndone\nexit 1\n",
    )
    .expect("written");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let told = serve(&world, |_| {});
    assert_told(&told, 1, &["2.30.0", "2.39", "routing.workspace.gitBinary"]);
    let doctor = world.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.contains("2.30.0"), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let world = World::new(&Config::default());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let yaml = std::fs::read_to_string(world.config_file()).expect("the configuration");
    std::fs::write(
        world.config_file(),
        yaml.replace("port: 0", &format!("port: {}", address.port())),
    )
    .expect("written");
    let told = serve(&world, |_| {});
    assert_told(&told, 1, &[&address.to_string(), "webhooks.github.port"]);
}

#[test]
fn a_second_daemon_is_refused_with_the_first_ones_process_and_disturbs_nothing() {
    let mut world = World::new(&every_pull_request());
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    let pid = world.pid().to_string();
    let told = serve(&world, |_| {});
    assert_told(&told, 1, &[&pid, "state.root"]);

    // Another state, the same checkouts.
    let yaml = std::fs::read_to_string(world.config_file()).expect("the configuration");
    let second = world.root().join("second.yaml");
    std::fs::write(&second, yaml.replace("root: state", "root: state2")).expect("written");
    let told = serve(&world, |command| {
        command.env("INNKEEPER_CONFIG", &second);
    });
    assert_told(&told, 1, &[&pid, "routing.workspace.root"]);

    let id = world.accept(&PullRequest::new(&repo(), 1, &head).branch("topic").opened());
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    assert!(world.ok(&["status"]).contains("ready"));

    // A killed one holds nothing.
    world.kill();
    world.start();
    assert!(world.ok(&["list"]).contains("acme/widgets#1"));
}

#[test]
fn what_is_in_the_way_of_a_directory_or_a_socket_is_named() {
    let world = World::new(&Config::default());
    let good = std::fs::read_to_string(world.config_file()).expect("the configuration");
    let file = world.root().join("a-file");
    std::fs::write(&file, "mine").expect("written");
    let in_the_way = file.display().to_string();
    for (from, to, key) in [
        ("root: state }", "root: a-file }", "state.root"),
        ("root: state }", "root: a-file/below }", "state.root"),
        ("root: checkouts", "root: a-file", "routing.workspace.root"),
        (
            "root: checkouts",
            "root: a-file/below",
            "routing.workspace.root",
        ),
    ] {
        std::fs::write(world.config_file(), good.replace(from, to)).expect("written");
        assert_told(&serve(&world, |_| {}), 1, &[&in_the_way, key]);
    }
    for (section, key) in [
        ("control: { socket: a-file }", "control.socket"),
        ("eventLog: { path: a-file/log }", "eventLog.path"),
    ] {
        std::fs::write(world.config_file(), format!("{good}\n{section}\n")).expect("written");
        assert_told(&serve(&world, |_| {}), 1, &[&in_the_way, key]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "mine");
}

/// Makes a file system of its own that cannot be written, for as long as it
/// lives.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn at(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "ro", "none"])
            .arg(dir)
            .output()
            .expect("mount runs");
        assert!(
            mounted.status.success(),
            "a file system can be mounted: {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Self(dir.to_owned())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _left = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn as_root_a_read_only_root_or_state_keeps_the_daemon_from_starting() {
    let world = World::new(&Config::default());
    {
        let _mounted = ReadOnly::at(&world.checkouts());
        let shown = world.checkouts().display().to_string();
        let told = serve(&world, |_| {});
        assert_told(
            &told,
            1,
            &[&shown, "Read-only file system", "routing.workspace.root"],
        );
        let doctor = world.run(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&doctor.stdout).contains("Read-only file system"));
    }
    std::fs::remove_dir_all(world.state()).expect("removed");
    let _mounted = ReadOnly::at(&world.state());
    let shown = world.state().display().to_string();
    let told = serve(&world, |_| {});
    assert_told(&told, 1, &[&shown, "Read-only file system", "state.root"]);
}

#[test]
fn a_directory_that_may_not_be_written_keeps_the_daemon_from_starting() {
    if rustix::process::geteuid().is_root() {
        // Root may write anywhere; `as_root_a_read_only_root_or_state…` is its case.
        return;
    }
    for (dir, key) in [
        ("state", "state.root"),
        ("checkouts", "routing.workspace.root"),
    ] {
        let world = World::new(&Config::default());
        let dir = world.root().join(dir);
        std::fs::create_dir(&dir).expect("a directory");
        let mode = std::fs::Permissions::from_mode;
        std::fs::set_permissions(&dir, mode(0o500)).expect("it is ours");
        let told = serve(&world, |_| {});
        assert_told(
            &told,
            1,
            &[&dir.display().to_string(), "Permission denied", key],
        );
        std::fs::set_permissions(&dir, mode(0o700)).expect("it is ours");
    }
}

#[test]
fn a_socket_path_longer_than_an_address_works() {
    let deep = "d".repeat(120);
    let mut world = World::new(&Config {
        other: format!("control: {{ socket: {deep}/control.sock }}"),
        ..Config::default()
    });
    std::fs::create_dir(world.root().join(&deep)).expect("a directory");
    world.start();
    let socket = world.root().join(&deep).join("control.sock");
    assert!(socket.as_os_str().len() > 107);
    assert!(world.ok(&["status"]).contains("ready"));
    world.stop();
    assert_eq!(world.run(&["status"]).status.code(), Some(3));
}

#[test]
fn a_checkout_with_a_live_session_or_with_work_is_left_only_as_asked() {
    let mut config = every_pull_request();
    config.sessions =
        "default: sleeper\nprofiles: { sleeper: { start: [sh, -c, 'sleep 600'] } }".into();
    let mut world = World::new(&config);
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    let id = world.accept(&PullRequest::new(&repo(), 1, &head).branch("topic").opened());
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    let checkout = PathBuf::from(
        world.wait_delivery("workspace.prepared", &id)["checkout"]
            .as_str()
            .expect("a path"),
    );
    for action in ["--keep", "--remove"] {
        let refused = world.run(&["exit", "acme/widgets#1", action, "--json"]);
        assert_eq!(refused.status.code(), Some(1));
        let told: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
        assert_eq!(told["error"]["code"], "in_use", "{told}");
        assert!(
            told["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("--stop")),
            "{told}"
        );
    }
    assert_eq!(world.events_named("session.exited"), Vec::<Value>::new());

    std::fs::write(checkout.join("work"), "mine").expect("written");
    let refused = world.run(&["exit", "acme/widgets#1", "--remove", "--stop"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.contains("untracked (1)") && text.contains("\n    work\n"),
        "{text}"
    );
    assert_eq!(refused.stdout, b"");
    assert_eq!(
        std::fs::read_to_string(checkout.join("work")).expect("there"),
        "mine"
    );

    // What exists is given back as it is, or the difference is named.
    let other = "1".repeat(40);
    for (option, value) in [
        ("--sha", other.as_str()),
        ("--branch", "main"),
        ("--strategy", "clone"),
    ] {
        let refused = world.run(&["prepare", "acme/widgets#1", option, value]);
        assert_eq!(refused.status.code(), Some(1), "{option}");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            text.contains(&checkout.display().to_string()),
            "{option}: {text}"
        );
    }
    let again = world.ok(&["prepare", "acme/widgets#1", "--branch", "topic"]);
    assert_eq!(again, format!("{}\n", checkout.display()));

    std::fs::remove_file(checkout.join("work")).expect("removed");
    world.ok(&["exit", "acme/widgets#1", "--remove"]);
    assert!(!checkout.exists());
    world.ok(&["exit", "acme/widgets#1", "--remove"]);
    let nothing = world.run(&["exit", "acme/widgets#1", "--keep"]);
    assert_eq!(nothing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&nothing.stderr);
    assert!(text.contains("has no checkout"), "{text}");
    for number in ["acme/widgets#0", "acme/widgets#-1", "acme/widgets"] {
        assert_eq!(world.run(&["prepare", number]).status.code(), Some(2));
    }
}

#[test]
fn reading_the_configuration_is_not_a_change_of_it() {
    let mut config = Config {
        other: "log: { level: debug }".into(),
        ..Config::default()
    };
    // Another strategy is a warning, which each reading of the file repeats.
    config.workspace = "strategy: sparse".into();
    let mut world = World::new(&config);
    world.start();
    let read = |world: &World| {
        let log = std::fs::read_to_string(world.root().join("daemon.log")).expect("the log");
        log.matches("sparse").count()
    };
    let at_start = read(&world);
    assert!(at_start >= 1, "the warning is told");
    // Commands open the file, and so does the daemon when it reads it again: for
    // longer than a change is left alone before it is taken up.
    let begun = Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(700) {
        world.ok(&["config", "check"]);
    }
    assert_eq!(read(&world), at_start, "nothing changed");
    config.routing = "maxAttempts: 10".into();
    world.configure(&config);
    world.wait_event("config.reloaded", 1);
    assert_eq!(read(&world), at_start + 1, "once for a change");

    // A broken one changes nothing and is told.
    config.routing = "maxAttempts: none".into();
    world.configure(&config);
    let rejected = world.wait_event("config.rejected", 1);
    let error = rejected["error"].as_str().expect("a text");
    assert!(error.contains("routing.maxAttempts"), "{error}");
    let reply = signed(&world, "ping", "after-all", b"{}");
    assert_eq!(reply.status, 202, "the old one stays in force");
    assert_eq!(world.wait_over("after-all")["reason"], "ping");
}
