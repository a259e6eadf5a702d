//! The binary as a person or a script meets it, without a daemon.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use tempfile::TempDir;

fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_innkeeper"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    command(home)
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a configuration whose event log is `events.jsonl` beside it.
fn configured(text: &str) -> TempDir {
    let home = home();
    let text = format!("state: {{ root: state }}\neventLog: {{ path: events.jsonl }}\n{text}");
    fs::write(home.path().join("innkeeper.yaml"), text).expect("written");
    home
}

fn event(seq: u64, name: &str, item: &str, delivery: &str) -> String {
    format!(
        "{{\"seq\":{seq},\"ts\":\"2026-11-{:02}T12:00:00.000Z\",\"level\":\"info\",\"node\":\"n\",\
         \"work_item\":\"{item}\",\"delivery\":\"{delivery}\",\"event\":\"{name}\",\"ms\":1}}\n",
        seq % 28 + 1
    )
}

const EVERY_COMMAND: [&[&str]; 36] = [
    &["serve"],
    &["demo"],
    &["init"],
    &["config"],
    &["config", "check"],
    &["config", "show"],
    &["config", "schema"],
    &["doctor"],
    &["status"],
    &["prepare"],
    &["list"],
    &["show"],
    &["explain"],
    &["exit"],
    &["item"],
    &["item", "start"],
    &["item", "stop"],
    &["item", "pause"],
    &["item", "resume"],
    &["item", "cleanup"],
    &["archive"],
    &["archive", "list"],
    &["archive", "show"],
    &["archive", "restore"],
    &["archive", "purge"],
    &["session"],
    &["session", "list"],
    &["session", "logs"],
    &["session", "stop"],
    &["deliveries"],
    &["deliveries", "list"],
    &["deliveries", "show"],
    &["deliveries", "replay"],
    &["events"],
    &["gc"],
    &["completions"],
];

#[test]
fn every_command_of_the_contract_has_help_on_standard_output() {
    let home = home();
    for path in EVERY_COMMAND {
        let output = run(home.path(), &[path, &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0), "{path:?}");
        assert!(out(&output).contains("Usage: innkeeper"), "{path:?}");
        assert_eq!(err(&output), "", "{path:?}");
    }
    assert_eq!(run(home.path(), &["--version"]).status.code(), Some(0));
}

#[rstest]
#[case(&[])]
#[case(&["no-such-command"])]
#[case(&["status", "--no-such-flag"])]
#[case(&["show"])]
#[case(&["show", "not a reference"])]
#[case(&["prepare", "o/r#1", "--sha", "abc123"])]
#[case(&["prepare", "o/r#1", "--strategy", "copy"])]
#[case(&["exit", "o/r#1"])]
#[case(&["exit", "o/r#1", "--keep", "--remove"])]
#[case(&["exit", "o/r#1", "--remove", "--discard-changes"])]
#[case(&["exit", "o/r#1", "--keep", "--discard-changes", "x"])]
#[case(&["exit", "o/r#1", "--discard-changes", "x"])]
#[case(&["deliveries", "replay"])]
#[case(&["deliveries", "replay", "d-1", "--since", "2h"])]
#[case(&["deliveries", "list", "--since", "yesterday"])]
#[case(&["events", "--type", "[", "--item", "o/r#1"])]
#[case(&["session", "logs", "o/r#1", "-f", "--json"])]
#[case(&["gc", "--dry-run", "--resume-removals"])]
#[case(&["completions", "command.com"])]
#[case(&["archive"])]
#[case(&["archive", "list", "x"])]
#[case(&["archive", "show"])]
#[case(&["archive", "restore", "x", "--to"])]
#[case(&["archive", "restore", "x", "--to", ""])]
#[case(&["archive", "purge"])]
fn wrong_usage_ends_with_2_and_says_nothing_on_standard_output(#[case] arguments: &[&str]) {
    let home = configured("");
    let output = run(home.path(), arguments);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert_eq!(out(&output), "");
    assert_ne!(err(&output), "");
}

#[test]
fn without_a_configuration_every_place_that_was_looked_in_is_named() {
    let home = home();
    let output = run(home.path(), &["status"]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(
        text.starts_with("error: there is no configuration"),
        "{text}"
    );
    assert!(text.contains(".config/innkeeper/innkeeper.yaml"), "{text}");
    assert!(text.contains("innkeeper init"), "{text}");
}

#[rstest]
#[case(&["status"])]
#[case(&["list", "--json"])]
#[case(&["show", "o/r#1"])]
#[case(&["explain", "o/r#1"])]
#[case(&["prepare", "o/r#1"])]
#[case(&["exit", "o/r#1", "--remove"])]
#[case(&["exit", "o/r#1", "--remove", "--discard-changes", "x"])]
#[case(&["archive", "list"])]
#[case(&["archive", "show", "x"])]
#[case(&["archive", "restore", "x", "--to", "there"])]
#[case(&["archive", "purge", "x"])]
#[case(&["item", "cleanup", "o/r#1"])]
#[case(&["session", "list"])]
#[case(&["session", "logs", "o/r#1"])]
#[case(&["deliveries", "list"])]
#[case(&["deliveries", "replay", "d-1"])]
#[case(&["events", "--item", "o-r-1-0a1b2c3d"])]
fn a_daemon_that_is_not_there_ends_with_3_and_says_where_it_was_sought(#[case] arguments: &[&str]) {
    let home = configured("");
    let output = run(home.path(), arguments);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert_eq!(out(&output), "");
    let text = err(&output);
    let socket = home.path().join("state/control.sock");
    assert!(
        text.contains(&format!(
            "the daemon is not reachable at {}: ",
            socket.display()
        )),
        "{text}"
    );
    assert!(text.contains("innkeeper serve"), "{text}");
}

#[test]
fn a_socket_path_longer_than_an_address_is_tried_all_the_same() {
    let deep = format!("{}/{}", "d".repeat(100), "e".repeat(100));
    let home = configured(&format!("control: {{ socket: {deep}/control.sock }}\n"));
    fs::create_dir_all(home.path().join(&deep)).expect("made");
    let output = run(home.path(), &["status"]);
    assert_eq!(output.status.code(), Some(3));
    // Not "path must be shorter".
    assert!(err(&output).contains("No such file"), "{}", err(&output));
}

#[test]
fn a_valid_configuration_is_told_on_standard_output_and_warnings_beside_it() {
    let home = configured("");
    let output = run(home.path(), &["config", "check"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).ends_with("innkeeper.yaml: valid, with 2 warnings\n"),
        "{}",
        out(&output)
    );
    assert!(
        err(&output).contains("INNKEEPER_WEBHOOK_SECRET"),
        "{}",
        err(&output)
    );
    assert!(!err(&output).contains("error"), "{}", err(&output));
    let output = run(home.path(), &["config", "check", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["valid"], true);
    assert_eq!(told["problems"][0]["severity"], "warning");
}

#[test]
fn every_error_of_a_configuration_is_told_with_its_line_and_ends_with_2() {
    let home = configured("inboxx: {}\nwebhooks: { github: { port: many } }\n");
    let output = run(home.path(), &["config", "check"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(out(&output), "");
    let text = err(&output);
    assert!(
        text.contains("innkeeper.yaml:3:1") && text.contains("inbox"),
        "{text}"
    );
    assert!(text.contains("innkeeper.yaml:4:"), "{text}");
    for command in [&["status"][..], &["config", "show"], &["events"]] {
        assert_eq!(
            run(home.path(), command).status.code(),
            Some(2),
            "{command:?}"
        );
    }
    let output = run(home.path(), &["config", "check", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&told["valid"], &told["problems"][0]["line"]),
        (&false.into(), &3.into())
    );
}

#[test]
fn the_resolved_configuration_and_its_schema_are_printed() {
    let home =
        configured("sessions: { profiles: { p: { start: [x], env: { API_TOKEN: canary } } } }\n");
    let output = run(home.path(), &["config", "show"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("maxConcurrentDispatches: 4"),
        "{}",
        out(&output)
    );
    assert!(!out(&output).contains("canary"));
    let output = run(home.path(), &["config", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["webhooks"]["github"]["port"], 8787);
    let schema: serde_json::Value =
        serde_json::from_slice(&run(home.path(), &["config", "schema"]).stdout).expect("JSON");
    assert!(schema["properties"]["routing"].is_object());
}

#[test]
fn init_writes_a_configuration_that_is_valid_and_never_a_second_time() {
    let home = home();
    let dir = home.path().join("inn");
    let output = run(home.path(), &["init", "--dir", "inn"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let secret = fs::read_to_string(dir.join("webhook-secret")).expect("a secret");
    let mode = fs::metadata(dir.join("webhook-secret"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!((mode & 0o777, secret.trim().len()), (0o600, 64));
    let text = out(&output);
    for told in [
        "Payload URL",
        "/webhooks/github",
        "application/json",
        "Pull requests",
        "doctor",
        "serve",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains(secret.trim()), "the secret is not printed");

    let file = dir.join("innkeeper.yaml");
    let named = file.to_str().expect("text");
    let check = run(home.path(), &["--config", named, "config", "check"]);
    assert_eq!(check.status.code(), Some(0), "{}", err(&check));
    assert!(
        out(&check).ends_with(": valid\n"),
        "{}{}",
        out(&check),
        err(&check)
    );

    let before = fs::read(&file).expect("read");
    let again = run(home.path(), &["init", "--dir", "inn"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(err(&again).contains("exists already"), "{}", err(&again));
    assert_eq!(fs::read(&file).expect("read"), before);
    assert_eq!(
        fs::read_to_string(dir.join("webhook-secret")).expect("read"),
        secret
    );
}

#[test]
fn init_keeps_a_secret_that_is_there_and_makes_another_each_time() {
    let home = home();
    fs::create_dir(home.path().join("a")).expect("made");
    fs::write(home.path().join("a/webhook-secret"), "mine\n").expect("written");
    assert!(run(home.path(), &["init", "--dir", "a"]).status.success());
    let secret = |dir: &str| {
        fs::read_to_string(home.path().join(dir).join("webhook-secret")).expect("a secret")
    };
    assert_eq!(secret("a"), "mine\n");
    for dir in ["b", "c"] {
        let output = run(home.path(), &["init", "--dir", dir, "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told["secret_is_new"], true);
    }
    assert_ne!(secret("b"), secret("c"));
}

#[test]
fn doctor_says_what_is_in_place_and_how_to_put_right_what_is_not() {
    let home = configured(
        "webhooks: { github: { port: 0, secretEnv: THE_SECRET } }\n\
         routing: { workspace: { root: checkouts, minFreeBytes: 0, minFreeInodes: 0 } }\n",
    );
    let output = command(home.path())
        .env("THE_SECRET", "x")
        .arg("doctor")
        .output()
        .expect("runs");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        out(&output),
        err(&output)
    );
    let text = out(&output);
    for line in [
        "ok       git ",
        "ok       secrets ",
        "ok       checkouts ",
        "warning  daemon ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        !home.path().join("checkouts").exists(),
        "doctor changes nothing"
    );

    let output = run(home.path(), &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let secrets = findings
        .as_array()
        .and_then(|all| {
            all.iter()
                .find(|one| one["what"] == "secrets" && one["level"] == "failure")
        })
        .expect("the secret is missing");
    assert!(secrets["remedy"].is_string());
}

#[test]
fn doctor_tells_of_a_git_that_is_missing_a_port_in_use_and_a_profile_without_program() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("an address").port();
    let home = configured(&format!(
        "webhooks: {{ github: {{ port: {port}, allowUnsigned: true }} }}\n\
         routing: {{ workspace: {{ gitBinary: /no/such/git }} }}\n\
         sessions: {{ default: p, profiles: {{ p: {{ start: [no-such-program] }} }} }}\n"
    ));
    let output = run(home.path(), &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    for told in [
        "failure  git ",
        "failure  webhook port ",
        "failure  sessions ",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn doctor_tells_what_is_taken_from_the_operators_git_configuration() {
    let home = configured("webhooks: { github: { allowUnsigned: true, port: 0 } }\n");
    let git = home.path().join("gitconfig");
    fs::write(
        &git,
        "[user]\n\tname = A\n[credential]\n\thelper = store\n[alias]\n\tx = !false\n",
    )
    .expect("written");
    let output = command(home.path())
        .env("GIT_CONFIG_GLOBAL", &git)
        .arg("doctor")
        .output()
        .expect("runs");
    let text = out(&output);
    assert!(text.contains("credential.helper, user.name"), "{text}");
    assert!(!text.contains("alias"), "{text}");
}

#[test]
fn events_are_read_without_a_daemon_oldest_file_first() {
    let home = configured("");
    let log = home.path().join("events.jsonl");
    fs::write(
        &log,
        event(3, "workspace.kept", "github:o/r#1", "d-2")
            + &event(4, "delivery.done", "github:o/r#2", "d-3")
            + "{\"seq\":5,",
    )
    .expect("written");
    fs::write(
        home.path().join("events.jsonl.1"),
        event(1, "webhook.received", "github:O/r#1", "d-1")
            + &event(2, "delivery.done", "github:ghe.example.com/o/r#1", "d-1"),
    )
    .expect("written");
    for (arguments, want) in [
        (&[][..], &[1, 2, 3, 4][..]),
        (&["--type", "delivery.*"], &[2, 4]),
        (&["--item", "o/r#1"], &[1, 3]),
        (&["--item", "https://ghe.example.com/o/r/issues/1"], &[2]),
        (&["--delivery", "d-1"], &[1, 2]),
        (&["--since", "2026-11-04T12:00:00Z"], &[3, 4]),
        (&["--json", "--item", "github:o/r#2"], &[4]),
        (&["--item", "o/none#1"], &[]),
    ] {
        let output = run(home.path(), &[&["events"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let seqs: Vec<u64> = out(&output)
            .lines()
            .map(|line| {
                let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
                value["seq"].as_u64().expect("a number")
            })
            .collect();
        assert_eq!(seqs, want, "{arguments:?}");
    }
}

#[test]
fn a_log_that_is_not_there_yet_is_empty() {
    let home = configured("");
    let output = run(home.path(), &["events"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), ""));
}

#[test]
fn following_tells_what_comes() {
    let home = configured("");
    let log = home.path().join("events.jsonl");
    fs::write(&log, event(1, "a.b", "", "")).expect("written");
    let mut child = command(home.path())
        .args(["events", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdout = child.stdout.take().expect("piped");
    let first = event(1, "a.b", "", "");
    let mut read = vec![0; first.len()];
    stdout.read_exact(&mut read).expect("the first comes");
    assert_eq!(String::from_utf8_lossy(&read), first);
    let second = event(2, "a.c", "", "");
    fs::write(&log, first + &second).expect("written");
    let mut read = vec![0; second.len()];
    stdout.read_exact(&mut read).expect("the second comes");
    assert_eq!(String::from_utf8_lossy(&read), second);
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn the_catalogue_names_every_event_with_its_fields() {
    let home = home();
    let output = run(home.path(), &["events", "--types", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<_> = told
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    let known: Vec<_> = innkeeper::domain::log_event::CATALOGUE
        .iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, known);
    let plain = out(&run(home.path(), &["events", "--types"]));
    assert_eq!(plain.lines().count(), known.len(), "a line each in a pipe");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let home = configured("");
    let mut text = String::new();
    for seq in 1..20_000 {
        text += &event(seq, "delivery.done", "github:o/r#1", "d");
    }
    fs::write(home.path().join("events.jsonl"), text).expect("written");
    for arguments in [
        &["events"][..],
        &["events", "--types"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut child = command(home.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ended");
        assert_eq!(err(&output), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let home = home();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(home.path(), &["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(out(&output).contains("deliveries"), "{shell}");
    }
}

#[test]
fn errors_carry_no_colour_outside_a_terminal() {
    let home = configured("inboxx: {}\n");
    for arguments in [&["config", "check"][..], &["status"], &["nonsense"]] {
        let output = run(home.path(), arguments);
        assert!(!err(&output).contains('\u{1b}'), "{arguments:?}");
    }
}
