//! The control socket of a real daemon: its routes, its refusals, and the
//! commands that speak to it.

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use support::payloads::{Repo, ping_of_repository};
use support::world::{Config, World};

struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Returns the error's code, after looking at its shape.
    fn refused(&self) -> String {
        let body = self.json();
        let error = body["error"].as_object().expect("an error");
        let mut fields: Vec<_> = error.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["code", "details", "message", "reason"]);
        assert!(!error["message"].as_str().expect("text").is_empty());
        error["code"].as_str().expect("text").to_owned()
    }
}

fn connect(world: &World) -> UnixStream {
    let stream = UnixStream::connect(world.state().join("control.sock")).expect("it answers");
    stream
        .set_read_timeout(Some(support::world::PATIENCE))
        .expect("set");
    stream
}

fn send(stream: &mut UnixStream, method: &str, path: &str, body: &str) {
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
}

fn ask(world: &World, method: &str, path: &str, body: &str) -> Reply {
    let mut stream = connect(world);
    send(&mut stream, method, path, body);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("answered");
    let split = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    Reply {
        status,
        head,
        body: bytes[split + 4..].to_vec(),
    }
}

fn get(world: &World, path: &str) -> Reply {
    ask(world, "GET", path, "")
}

fn post(world: &World, path: &str, body: &Value) -> Reply {
    ask(world, "POST", path, &body.to_string())
}

/// A world with one origin, `acme/app`, and a running daemon.
fn world() -> World {
    world_with(&Config::default())
}

fn world_with(config: &Config) -> World {
    let mut world = World::new(config);
    world.origin("acme", "app");
    world.start();
    world
}

const REFERENCE: &str = "github%3Aforge.example%2Facme%2Fapp%231";

#[test]
fn the_probes_and_the_metrics_answer_and_the_socket_is_private() {
    let world = world();
    assert_eq!(get(&world, "/healthz").status, 200);
    let ready = get(&world, "/readyz");
    assert_eq!(
        ready.status,
        200,
        "{}",
        String::from_utf8_lossy(&ready.body)
    );
    assert_eq!(ready.json(), json!({ "ready": true, "problems": [] }));
    let metrics = get(&world, "/metrics");
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.head.contains("text/plain; version=0.0.4"),
        "{}",
        metrics.head
    );
    let socket = std::fs::metadata(world.state().join("control.sock")).expect("there");
    assert_eq!(socket.mode() & 0o777, 0o600);
    let status = get(&world, "/api/v1/status").json();
    assert_eq!(status["pid"], world.pid());
    assert_eq!(status["ready"], true);
    assert_eq!(status["deliveries"]["parked"], 0);
    assert_eq!(status["archives"], json!({ "count": 0, "bytes": 0 }));
}

#[test]
fn what_is_not_known_is_refused_in_one_shape() {
    let world = world();
    let mut refusals = Vec::new();
    for (method, path, body, status, code) in [
        ("GET", "/nowhere", "", 404, "no_such_route"),
        ("GET", "/api/v1/nowhere", "", 404, "no_such_route"),
        ("DELETE", "/api/v1/checkouts", "", 405, "no_such_method"),
        ("GET", "/api/v1/checkouts?colour=red", "", 400, "bad_input"),
        (
            "GET",
            "/api/v1/checkouts?size=perhaps",
            "",
            400,
            "bad_input",
        ),
        ("GET", "/api/v1/deliveries?state=lost", "", 400, "bad_input"),
        ("GET", "/api/v1/events?type=%5B", "", 400, "bad_input"),
        ("GET", "/api/v1/checkouts/nonsense", "", 400, "bad_input"),
        (
            "GET",
            "/api/v1/checkouts/acme%2Fapp%2399",
            "",
            404,
            "not_found",
        ),
        (
            "GET",
            "/api/v1/checkouts/acme-app-1-00000000/explain",
            "",
            404,
            "not_found",
        ),
        ("GET", "/api/v1/sessions/none", "", 404, "not_found"),
        ("GET", "/api/v1/sessions/none/log", "", 404, "not_found"),
        ("GET", "/api/v1/deliveries/none", "", 404, "not_found"),
        (
            "POST",
            "/api/v1/deliveries/none/replay",
            "",
            404,
            "not_found",
        ),
        ("POST", "/api/v1/sessions/none/close", "", 404, "not_found"),
        (
            "POST",
            "/api/v1/items/acme%2Fapp%2399/pause",
            "",
            404,
            "not_found",
        ),
        ("POST", "/api/v1/checkouts", "not json", 400, "bad_input"),
        ("POST", "/api/v1/checkouts", "{}", 400, "bad_input"),
        (
            "POST",
            "/api/v1/checkouts",
            r#"{"work_item":"acme/app#1","color":1}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/checkouts",
            r#"{"work_item":"acme/app#1","commit":"abc"}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/checkouts",
            r#"{"work_item":"acme/app#1","source":"webhook"}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/checkouts/acme%2Fapp%231/exit",
            r#"{"action":"burn"}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/checkouts/acme%2Fapp%231/exit",
            r#"{"action":"keep","discard_changes":"x"}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/checkouts/acme%2Fapp%231/exit",
            r#"{"action":"remove","discard_changes":"x"}"#,
            404,
            "not_found",
        ),
        ("GET", "/api/v1/archives/none", "", 404, "not_found"),
        (
            "GET",
            "/api/v1/archives/..%2F..%2Fetc",
            "",
            404,
            "not_found",
        ),
        (
            "POST",
            "/api/v1/archives/none/restore",
            "",
            404,
            "not_found",
        ),
        (
            "POST",
            "/api/v1/archives/none/restore",
            r#"{"to":"somewhere"}"#,
            400,
            "bad_input",
        ),
        (
            "POST",
            "/api/v1/archives/none/restore",
            r#"{"force":true}"#,
            400,
            "bad_input",
        ),
        ("DELETE", "/api/v1/archives/none", "", 404, "not_found"),
        ("DELETE", "/api/v1/archives", "", 405, "no_such_method"),
        ("POST", "/api/v1/archives/none", "", 405, "no_such_method"),
    ] {
        let reply = ask(&world, method, path, body);
        let found = (reply.status, reply.refused());
        if found != (status, code.to_owned()) {
            refusals.push(format!(
                "{method} {path} {body}: {found:?}, not {status} {code}"
            ));
        }
    }
    assert!(refusals.is_empty(), "{}", refusals.join("\n"));
    let large = ask(&world, "POST", "/api/v1/checkouts", &" ".repeat(70_000));
    assert_eq!(large.status, 413);
}

#[test]
fn a_checkout_is_prepared_shown_explained_and_removed_over_the_socket() {
    let world = world();
    let prepared = post(
        &world,
        "/api/v1/checkouts",
        &json!({ "work_item": "acme/app#1" }),
    );
    assert_eq!(
        prepared.status,
        200,
        "{}",
        String::from_utf8_lossy(&prepared.body)
    );
    let prepared = prepared.json()["prepared"].clone();
    let path = prepared["checkout"].as_str().expect("a path").to_owned();
    assert_eq!(prepared["commit"], prepared["base"]);
    assert!(std::path::Path::new(&path).join("README").is_file());
    let told = world.wait_event("workspace.prepared", 1);
    assert_eq!(told["source"], "api");

    let list = get(&world, "/api/v1/checkouts?size=true").json();
    assert_eq!(list[0]["path"], path.as_str());
    assert_eq!(list[0]["state"], "ready");
    assert!(list[0]["bytes"].as_u64().expect("measured") > 0);
    let slug = list[0]["slug"].as_str().expect("a slug").to_owned();

    // By reference, short reference, address and slug.
    for name in [
        REFERENCE,
        "acme%2Fapp%231",
        "https%3A%2F%2Fforge.example%2Facme%2Fapp%2Fissues%2F1",
        slug.as_str(),
    ] {
        let shown = get(&world, &format!("/api/v1/checkouts/{name}"));
        assert_eq!(shown.status, 200, "{name}");
        assert_eq!(shown.json()["checkout"]["path"], path.as_str(), "{name}");
    }

    std::fs::write(std::path::Path::new(&path).join("work"), "mine").expect("written");
    let explained = get(&world, &format!("/api/v1/checkouts/{slug}/explain")).json();
    assert_eq!(
        explained["explained"]["probes"].as_array().map(Vec::len),
        Some(10)
    );
    assert_eq!(
        explained["explained"]["verdict"]["keep"][0]["code"],
        "untracked"
    );

    assert_eq!(explained["explained"]["on_close"], "archived");

    let exit = format!("/api/v1/checkouts/{slug}/exit");
    let refused = post(&world, &exit, &json!({ "action": "remove" }));
    assert_eq!(refused.status, 409);
    assert_eq!(refused.refused(), "work_at_risk");
    let details = &refused.json()["error"]["details"];
    assert_eq!(details["counts"]["untracked"], 1);
    assert_eq!(details["paths"]["untracked"], json!(["work"]));
    assert!(std::path::Path::new(&path).join("work").is_file());

    std::fs::remove_file(std::path::Path::new(&path).join("work")).expect("removed");
    let removed = post(&world, &exit, &json!({ "action": "remove" }));
    assert_eq!(
        removed.status,
        200,
        "{}",
        String::from_utf8_lossy(&removed.body)
    );
    assert_eq!(
        removed.json(),
        json!({ "removed": { "checkout": path, "archive": null } })
    );
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(get(&world, "/api/v1/checkouts").json(), json!([]));
}

#[test]
fn work_at_risk_is_discarded_with_the_token_of_the_refusal_and_archived_all_the_same() {
    for strategy in ["worktree", "clone"] {
        let world = world();
        let path = world.ok(&["prepare", "acme/app#1", "--strategy", strategy]);
        let path = std::path::Path::new(path.trim_end());
        std::fs::write(path.join("work"), "mine").expect("written");

        // The refusal is the same on every surface, and the token stays the same
        // for as long as the work does.
        let exit = format!("/api/v1/checkouts/{REFERENCE}/exit");
        let refused = post(&world, &exit, &json!({ "action": "remove" }));
        assert_eq!(
            (refused.status, refused.refused().as_str()),
            (409, "work_at_risk")
        );
        let error = refused.json()["error"].clone();
        let token = error["details"]["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        for arguments in [
            &["exit", "acme/app#1", "--remove", "--json"][..],
            &[
                "exit",
                "acme/app#1",
                "--remove",
                "--discard-changes",
                "x",
                "--json",
            ],
        ] {
            let output = world.run(arguments);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(told["error"], error, "{arguments:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                said.contains(&format!("--discard-changes {token}")),
                "{said}"
            );
        }
        for wrong in [
            json!(true),
            json!(""),
            json!(token[1..]),
            json!(1),
            json!({}),
        ] {
            let body = json!({ "action": "remove", "discard_changes": wrong });
            let refused = post(&world, &exit, &body);
            assert_eq!(refused.status, 409, "{wrong}");
            assert_eq!(refused.json()["error"], error, "{wrong}");
        }

        // A change after the refusal voids it.
        std::fs::write(path.join("work"), "more").expect("written");
        let body = json!({ "action": "remove", "discard_changes": token });
        let refused = post(&world, &exit, &body);
        assert_eq!(refused.refused(), "work_at_risk");
        let renewed = refused.json()["error"]["details"]["token"].clone();
        let renewed = renewed.as_str().expect("a token");
        assert_ne!(renewed, token);
        assert!(path.join("work").is_file());
        assert!(world.events_named("archive.created").is_empty());

        let said = world.ok(&[
            "exit",
            "acme/app#1",
            "--remove",
            "--discard-changes",
            renewed,
        ]);
        assert!(!path.exists());
        let created = world.wait_event("archive.created", 1);
        let archive = created["archive"].as_str().expect("an id");
        assert!(
            said.contains(&format!("innkeeper archive restore {archive}")),
            "{said}"
        );
        let archives = get(&world, "/api/v1/archives").json();
        assert_eq!(archives[0]["id"], archive);
        assert_eq!(archives[0]["open"], true);

        let restore = format!("/api/v1/archives/{archive}/restore");
        let restored = post(&world, &restore, &json!({})).json();
        let (shown, differs) = (path.display().to_string(), json!([]));
        assert_eq!(
            restored,
            json!({ "restored": {
                "archive": archive, "checkout": shown, "alone": false, "differs": differs,
            } })
        );
        assert_eq!(std::fs::read(path.join("work")).expect("read"), b"more");
        let again = post(&world, &restore, &Value::Null);
        assert_eq!((again.status, again.refused().as_str()), (400, "bad_input"));
        let again = post(&world, &restore, &json!({}));
        assert_eq!(
            (again.status, again.refused().as_str()),
            (409, "path_occupied")
        );
        let purged = ask(&world, "DELETE", &format!("/api/v1/archives/{archive}"), "");
        assert_eq!(purged.json()["purged"]["archive"], archive);
        assert_eq!(get(&world, "/api/v1/archives").json(), json!([]));
    }
}

#[test]
fn the_commands_say_the_same_and_end_with_the_codes_of_the_contract() {
    let world = world();
    let path = world.ok(&["prepare", "acme/app#1"]);
    let path = path.strip_suffix('\n').expect("one line");
    assert!(
        std::path::Path::new(path).join("README").is_file(),
        "{path}"
    );
    assert_eq!(world.wait_event("workspace.prepared", 1)["source"], "cli");

    let list = world.ok(&["list"]);
    let cells: Vec<_> = list.trim_end().split('\t').collect();
    assert_eq!(cells[0], "github:forge.example/acme/app#1");
    assert_eq!((cells[1], cells[cells.len() - 1]), ("ready", path));
    let json: Value = serde_json::from_str(&world.ok(&["list", "--json"])).expect("JSON");
    assert_eq!(json[0]["path"], path);
    assert!(world.ok(&["show", "acme/app#1", "--size"]).contains(path));
    assert!(world.ok(&["status"]).contains("1 ready"));
    assert!(world.ok(&["doctor"]).contains("is ready"));
    assert!(
        world
            .ok(&["explain", "acme/app#1"])
            .contains("it could be removed")
    );

    std::fs::write(std::path::Path::new(path).join("work"), "mine").expect("written");
    let refused = world.run(&["exit", "acme/app#1", "--remove"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.starts_with("error: ") && text.contains("untracked (1)"),
        "{text}"
    );
    let refused = world.run(&["exit", "acme/app#1", "--remove", "--json"]);
    assert_eq!(refused.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!(told["error"]["details"]["counts"]["untracked"], 1);

    for word in ["pause", "resume", "stop"] {
        world.ok(&["item", word, "acme/app#1"]);
    }
    std::fs::remove_file(std::path::Path::new(path).join("work")).expect("removed");
    world.ok(&["exit", "acme/app#1", "--remove"]);
    assert_eq!(world.ok(&["list"]), "");
    let unknown = world.run(&["show", "acme/app#99"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(
        world.run(&["deliveries", "show", "none"]).status.code(),
        Some(1)
    );
}

#[test]
fn a_client_that_goes_away_does_not_stop_what_it_began() {
    let world = world();
    let mut stream = connect(&world);
    send(
        &mut stream,
        "POST",
        "/api/v1/checkouts",
        &json!({ "work_item": "acme/app#1" }).to_string(),
    );
    drop(stream);
    world.wait_event("workspace.prepared", 1);
    world.until("the checkout is listed as ready", || {
        get(&world, "/api/v1/checkouts").json()[0]["state"] == "ready"
    });
}

#[test]
fn a_sessions_output_is_followed_to_its_end() {
    let mut world = World::new(&Config {
        routing: "rules: [{ then: start }]\ntrust: { users: [octocat, alice] }".to_owned(),
        sessions: "default: p\nprofiles: { p: { start: [sh, -c, 'echo one; until test -e go; do sleep 0.01; done; echo two'] } }"
            .to_owned(),
        ..Config::default()
    });
    world.origin("acme", "app");
    world.start();
    let started: Value =
        serde_json::from_str(&world.ok(&["item", "start", "acme/app#1", "--json"])).expect("JSON");
    assert!(started.is_object(), "{started}");
    let directory = world.wait_event("session.started", 1)["directory"]
        .as_str()
        .expect("a directory")
        .to_owned();

    let mut follower = world
        .command()
        .args(["session", "logs", "acme/app#1", "-f"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdout = follower.stdout.take().expect("piped");
    let mut first = [0; 4];
    stdout.read_exact(&mut first).expect("the first line comes");
    assert_eq!(&first, b"one\n");
    let live = get(&world, "/api/v1/sessions?live=true").json();
    assert_eq!(live[0]["state"], "running");
    let busy = world.run(&["exit", "acme/app#1", "--remove"]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&busy.stderr).contains("--stop"),
        "it says what to do"
    );

    std::fs::write(std::path::Path::new(&directory).join("go"), "").expect("written");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("it ends");
    assert_eq!(rest, "two\n");
    assert!(follower.wait().expect("ended").success());
    let id = live[0]["id"].as_str().expect("an id");
    assert_eq!(world.ok(&["session", "logs", id, "--tail", "4"]), "two\n");
    let told: Value =
        serde_json::from_str(&world.ok(&["session", "logs", id, "--json"])).expect("JSON");
    assert_eq!(told["log"], "one\ntwo\n");
    assert!(world.ok(&["session", "list"]).contains("exit code 0"));
}

#[test]
fn deliveries_are_listed_shown_and_taken_up_afresh() {
    let mut world = world();
    let ping = world.accept(&ping_of_repository(&Repo::new("acme", "app", 1)));
    world.wait_over(&ping);
    let list = world.ok(&["deliveries", "list", "--state", "dropped", "--since", "1h"]);
    let cells: Vec<_> = list.trim_end().split('\t').collect();
    assert_eq!(
        (cells[0], cells[4], cells[6]),
        (ping.as_str(), "dropped", "ping")
    );
    assert!(world.ok(&["deliveries", "show", &ping]).contains("dropped"));
    let shown: Value =
        serde_json::from_str(&world.ok(&["deliveries", "show", &ping, "--payload", "--json"]))
            .expect("JSON");
    assert_eq!(shown["payload"]["hook"]["type"], "Repository");

    // Nothing came that is worth taking up; by its id it is taken up all the same.
    assert_eq!(world.ok(&["deliveries", "replay", "--since", "1h"]), "");
    let told = world.ok(&["deliveries", "replay", &ping]);
    assert_eq!(told, format!("{ping} is taken up afresh\n"));
    world.wait_event("delivery.dropped", 2);

    // One that is not known does not keep the others back.
    let mixed = world.run(&["deliveries", "replay", "none", &ping, "--json"]);
    assert_eq!(mixed.status.code(), Some(1));
    world.wait_event("delivery.dropped", 3);

    let events = get(&world, "/api/v1/events?type=delivery.dropped&limit=2").json();
    assert_eq!(events.as_array().map(Vec::len), Some(2));
    assert_eq!(events[1]["delivery"], ping.as_str());
}

#[test]
fn connections_that_come_and_go_use_nothing_up() {
    let world = world();
    for _ in 0..300 {
        drop(connect(&world));
    }
    assert_eq!(get(&world, "/healthz").status, 200);
}

#[test]
fn requests_in_flight_do_not_keep_a_daemon_from_ending() {
    let mut world = world();
    // One that never finishes its request, and one that is kept open.
    let mut half = connect(&world);
    half.write_all(b"GET /healthz HTT").expect("sent");
    let idle = connect(&world);
    let begun = std::time::Instant::now();
    world.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "{:?}",
        begun.elapsed()
    );
    drop((half, idle));
    assert!(!world.state().join("control.sock").exists());
    let unreachable = world.run(&["status"]);
    assert_eq!(unreachable.status.code(), Some(3));
}

#[test]
fn giving_back_accounts_for_the_root_and_refuses_what_contradicts_itself() {
    let world = world();
    let report = post(&world, "/api/v1/gc", &json!({ "dry_run": true }));
    assert_eq!(report.status, 200);
    let report = report.json();
    assert_eq!(report["dry_run"], true);
    assert_eq!(report["roots"], json!([world.checkouts()]));
    assert!(report["reconciled"].is_null() && report["halted"].is_null());
    let kinds: Vec<_> = report["holdings"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["kind"].clone())
        .collect();
    assert_eq!(kinds, ["own"], "nothing was cloned yet");
    let done = post(&world, "/api/v1/gc", &json!({})).json();
    assert_eq!(
        done["reconciled"],
        json!({ "adopted": 0, "finished": 0, "missing": 0, "foreign": 0 })
    );
    for body in [
        json!({ "dry_run": true, "resume_removals": true }),
        json!({ "dryRun": true }),
        json!({ "dry_run": "yes" }),
    ] {
        let refused = post(&world, "/api/v1/gc", &body);
        assert_eq!(
            (refused.status, refused.refused().as_str()),
            (400, "bad_input")
        );
    }
    assert_eq!(get(&world, "/api/v1/gc").status, 405);
}
