//! The configuration as an operator meets it: a file, and what is said about it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use innkeeper::config::{
    self, Config, ConfigErrors, Environment, Loaded, LogFormat, Secret, Template, Then,
};
use innkeeper::domain::checkout::Strategy;
use rstest::rstest;
use tempfile::TempDir;

fn environment() -> Environment {
    Environment::new([("HOME", "/home/op")], "/cwd")
}

fn parse(text: &str) -> Result<Loaded, ConfigErrors> {
    config::parse(
        text,
        Path::new("/etc/innkeeper/innkeeper.yaml"),
        &environment(),
    )
}

fn accepted(text: &str) -> Config {
    match parse(text) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}"),
    }
}

/// Returns the errors and warnings as lines, without the file's name.
fn told(text: &str) -> Vec<String> {
    let problems = match parse(text) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors.problems().to_vec(),
    };
    problems
        .iter()
        .map(|problem| {
            let line = problem.one_line();
            let kind = if problem.is_error() {
                "error"
            } else {
                "warning"
            };
            format!(
                "{kind} {}",
                line.trim_start_matches("/etc/innkeeper/innkeeper.yaml:")
            )
        })
        .collect()
}

#[test]
fn an_empty_file_means_every_default() {
    for text in ["", "# nothing\n", "---\n", "{}"] {
        assert_eq!(accepted(text), accepted("state: {}\n"), "{text:?}");
    }
    let config = accepted("");
    assert_eq!(
        config.state.root,
        Path::new("/home/op/.local/state/innkeeper")
    );
    assert_eq!(
        config.control.socket,
        Path::new("/home/op/.local/state/innkeeper/control.sock")
    );
    assert_eq!(
        config.event_log.path,
        Path::new("/home/op/.local/state/innkeeper/events.jsonl")
    );
    assert_eq!(config.routing.spawn_workdir, Path::new("/etc/innkeeper"));
    assert_eq!(config.routing.workspace.root, None);
    assert_eq!(
        config.routing.workspace.git_timeout,
        Duration::from_mins(30)
    );
    assert_eq!(config.log.format, LogFormat::Auto);
}

#[test]
fn a_path_is_relative_to_its_file_and_a_tilde_is_home() {
    let config = accepted(
        "state: { root: ../state/./x }
control: { socket: ~/c.sock }
eventLog: { path: /var/log/e.jsonl }
webhooks: { github: { secretFiles: [s/one, ~/two] } }
routing: { spawnWorkdir: \"~\", workspace: { root: ws, gitBinary: ./bin/git } }
notify: { command: [notify-send] }
sessions: { profiles: { p: { start: [./agent.sh, ./x], resume: [agent] } } }
",
    );
    assert_eq!(config.state.root, Path::new("/etc/innkeeper/../state/x"));
    assert_eq!(config.control.socket, Path::new("/home/op/c.sock"));
    assert_eq!(config.event_log.path, Path::new("/var/log/e.jsonl"));
    assert_eq!(
        config.webhooks.github.secret_files,
        ["/etc/innkeeper/s/one", "/home/op/two"].map(PathBuf::from)
    );
    assert_eq!(config.routing.spawn_workdir, Path::new("/home/op"));
    assert_eq!(
        config.routing.workspace.root.as_deref(),
        Some(Path::new("/etc/innkeeper/ws"))
    );
    assert_eq!(
        config.routing.workspace.git_binary,
        "/etc/innkeeper/bin/git"
    );
    assert_eq!(config.notify.command, ["notify-send"]);
    let profile = &config.sessions.profiles["p"];
    assert_eq!(
        profile.start,
        [
            "/etc/innkeeper/./agent.sh".replace("/./", "/"),
            "./x".into()
        ]
    );
    assert_eq!(profile.resume.as_deref(), Some(&["agent".to_owned()][..]));
}

#[test]
fn a_tilde_without_a_home_is_told() {
    let env = Environment::new([("PATH", "/bin")], "/cwd");
    let errors =
        config::parse("state:\n  root: ~/x\n", Path::new("/f.yaml"), &env).expect_err("no home");
    assert_eq!(
        errors.one_line(),
        "/f.yaml:2:9: `state.root` begins with `~`, but HOME names no directory"
    );
}

#[test]
fn one_word_is_taken_where_a_list_may_stand() {
    let config = accepted(
        "webhooks: { github: { secretEnv: A } }
routing:
  rules:
    - { when: { event: pull_request, association: OWNER, fork: true }, then: ignore }
    - { name: x, when: { event: [issues], branch: [a, \"b/*\"] }, then: start, strategy: clone }
",
    );
    assert_eq!(config.webhooks.github.secret_env, ["A"]);
    let [first, second] = &config.routing.rules[..] else {
        panic!("two rules")
    };
    assert_eq!((first.name.as_str(), first.then), ("rule 1", Then::Ignore));
    assert_eq!(first.when.event, ["pull_request"]);
    assert_eq!(first.when.association, ["OWNER"]);
    assert_eq!(first.when.fork, Some(true));
    assert_eq!(second.name, "x");
    assert_eq!(second.when.branch, ["a", "b/*"]);
    assert_eq!(second.strategy, Some(Strategy::Clone));
}

#[test]
fn a_message_names_file_line_column_and_key_and_shows_the_line() {
    let errors = parse("routing:\n  lable: x\n  maxAttempts: 0\n").expect_err("wrong");
    insta::assert_snapshot!(errors, @r"
    error: unknown key `routing.lable`
     --> /etc/innkeeper/innkeeper.yaml:2:3
      |
    2 |   lable: x
      |   ^^^^^
      |
      = help: did you mean `label`?

    error: `routing.maxAttempts` must be between 1 and 100, not 0
     --> /etc/innkeeper/innkeeper.yaml:3:16
      |
    3 |   maxAttempts: 0
      |                ^
    ");
    assert!(
        !errors.to_string().contains('\u{1b}'),
        "no colour unless asked for"
    );
    assert!(errors.render(true).contains('\u{1b}'));
}

#[rstest]
// Not YAML, or more of it than is understood.
#[case("a: [", &["error 1:5: not valid YAML: while parsing a node, did not find expected node content"])]
#[case("a: 1\n---\nb: 1\n", &["error 2:1: the file holds more than one document"])]
#[case("state: !x {}", &["error 1:8: tags have no meaning here"])]
#[case("- a\n", &["error 1:1: the file must be a map, not a list"])]
// Unknown keys.
#[case("metric: {}", &["error 1:1: unknown key `metric` (did you mean `metrics`?)"])]
#[case("store: {}", &["error 1:1: unknown key `store` (the keys here are control, eventLog, inbox, log, metrics, notify, routing, sessions, state, webhooks)"])]
#[case("control: { port: 1 }", &["error 1:12: unknown key `control.port` (the keys here are socket)"])]
#[case("routing: { closeWith: item }", &["error 1:12: unknown key `routing.closeWith` (the keys here are command, label, maxAttempts, maxConcurrentDispatches, repositories, rules, spawnWorkdir, trust, workspace)"])]
#[case("sessions:\n  profiles:\n    p:\n      start: [a]\n      input: stdin\n", &["error 5:7: unknown key `sessions.profiles.p.input` (the keys here are env, maxConcurrent, passEnv, prompt, resume, start, timeoutMinutes)"])]
#[case("routing: { rules: [{ then: start, when: { evnt: x } }] }", &["error 1:43: unknown key `routing.rules[0].when.evnt` (did you mean `event`?)"])]
// Duplicate keys, in maps with known and with free keys.
#[case("log: {}\nlog: {}\n", &["error 2:1: duplicate key `log` (it is given on line 1 already)"])]
#[case("sessions: { profiles: { p: { start: [a], env: { X: a, X: b } } } }", &["error 1:55: duplicate key `sessions.profiles.p.env.X` (it is given on line 1 already)"])]
#[case("routing: { workspace: { hosts: { h: {}, h: {} } } }", &["error 1:41: duplicate key `routing.workspace.hosts.h` (it is given on line 1 already)"])]
// Wrong types.
#[case("webhooks: { github: { port: x } }", &["error 1:29: `webhooks.github.port` must be a whole number, not a text"])]
#[case("webhooks: { github: { port: 1.5 } }", &["error 1:29: `webhooks.github.port` must be a whole number, not a number with a fraction"])]
#[case("webhooks: { github: { enabled: yes } }", &["error 1:32: `webhooks.github.enabled` must be true or false, not a text (write true)"])]
#[case("routing: { label: 12 }", &["error 1:19: `routing.label` must be a text, not a number (put it in quotes: \"12\")"])]
#[case("routing: []", &["error 1:1: `routing` must be a map, not a list"])]
#[case("routing:\n", &["error 1:1: `routing` has no value (leave the key out to get its default, or write `{}`)"])]
#[case("webhooks: { github: { secretEnv: { A: B } } }", &["error 1:23: `webhooks.github.secretEnv` must be a text or a list, not a map"])]
#[case("sessions: { profiles: { p: { start: [a, {prompt}] } } }", &["error 1:42: `sessions.profiles.p.start[1]` must be a text, not a map (text with braces, such as \"{prompt}\", must be quoted)"])]
#[case("sessions: { profiles: { p: { resume: [a] } } }", &["error 1:30: `sessions.profiles.p` lacks the key `start`"])]
#[case("routing: { rules: [{ name: x }] }", &["error 1:22: `routing.rules[0]` lacks the key `then`"])]
// One of a few words.
#[case("log: { level: inof }", &["error 1:15: `log.level` must be one of error, warn, info, debug, trace, not `inof` (did you mean `info`?)"])]
#[case("sessions: { runner: tmux }", &["error 1:21: `sessions.runner` must be one of process, not `tmux`"])]
#[case("routing: { workspace: { untrustedStrategy: x } }", &["error 1:44: `routing.workspace.untrustedStrategy` must be one of worktree, clone, not `x`"])]
#[case("routing: { rules: [{ then: start, strategy: copy }] }", &["error 1:45: `routing.rules[0].strategy` must be one of worktree, clone, not `copy`"])]
#[case("routing: { trust: { associations: [OWNERS] } }", &["error 1:36: `routing.trust.associations[0]` must be one of OWNER, MEMBER, COLLABORATOR, CONTRIBUTOR, FIRST_TIME_CONTRIBUTOR, FIRST_TIMER, MANNEQUIN, NONE, not `OWNERS` (did you mean `OWNER`?)"])]
// Here alone another word is a warning.
#[case("routing: { workspace: { strategy: clon } }", &["warning 1:35: `routing.workspace.strategy` is `clon`, which is not known: `worktree` is used (did you mean `clone`?)"])]
// Ranges.
#[case("webhooks: { github: { port: 65536 } }", &["error 1:29: `webhooks.github.port` must be between 0 and 65535, not 65536"])]
#[case("routing: { workspace: { removal: { onDirty: burn } } }", &["error 1:45: `routing.workspace.removal.onDirty` must be one of archive, keep, not `burn`"])]
#[case("routing: { workspace: { removal: { archiveMaxBytes: 0, archiveDays: 40000 } } }", &["error 1:53: `routing.workspace.removal.archiveMaxBytes` must be between 1 and 1125899906842624, not 0", "error 1:69: `routing.workspace.removal.archiveDays` must be between 0 and 36500, not 40000"])]
#[case("inbox: { maxPending: -1 }", &["error 1:22: `inbox.maxPending` must be between 1 and 100000000, not -1"])]
#[case("sessions: { maxConcurrent: 99999999999999999999999 }", &["error 1:28: `sessions.maxConcurrent` must be between 1 and 10000, not 99999999999999999999999"])]
#[case("webhooks: { github: { maxBodyBytes: 2048, bodyBudgetBytes: 1024 } }", &["error 1:60: `webhooks.github.bodyBudgetBytes` is 1024, less than one body of `maxBodyBytes` (2048) needs"])]
// Webhooks.
#[case("webhooks: { github: { host: 0.0.0.0, allowUnsigned: true } }", &["error 1:53: `webhooks.github.allowUnsigned` is only for a loopback address, and `webhooks.github.host` is `0.0.0.0`"])]
#[case("webhooks: { github: { host: \"127.0.0.1:80\" } }", &["error 1:29: `webhooks.github.host` is neither an address nor a name (write an address without a port, such as 127.0.0.1, 0.0.0.0 or ::1)"])]
#[case("webhooks: { github: { path: hook } }", &["error 1:29: `webhooks.github.path` must begin with `/` and hold only letters, digits and `/ - _ . ~`"])]
#[case("webhooks: { github: { path: /healthz/ } }", &["error 1:29: `webhooks.github.path` is taken by the health check"])]
#[case("webhooks: { github: { secretEnv: [A, \"\"] } }", &["error 1:38: `webhooks.github.secretEnv[1]` must be the name of a variable; the secret itself never stands in the file"])]
// Routing.
#[case("routing: { repositories: [] }", &["error 1:12: `routing.repositories` is empty: every delivery would be dropped (write [\"*\"] for all repositories)"])]
#[case("routing: { repositories: [acme] }", &["error 1:27: `routing.repositories[0]` `acme` is not of the form owner/name (write `owner/*` for all repositories of an owner)"])]
#[case("routing: { repositories: [\"a/[\"] }", &["error 1:27: `routing.repositories[0]` is not a glob: unclosed character class; missing ']'"])]
#[case("routing: { command: /a b }", &["error 1:21: `routing.command` must be one word"])]
#[case("routing: { trust: { users: [\"@a\"] } }", &["error 1:29: `routing.trust.users[0]` must be a login (write it without the @: a)"])]
#[case("routing: { trust: { associations: [NONE] } }", &["warning 1:36: `routing.trust.associations[0]` holds NONE: anybody at all could start a session"])]
#[case("routing: { rules: [{ when: { event: [] }, then: ignore }] }", &["error 1:30: `routing.rules[0].when.event` is empty: the rule would never match (leave the key out to match everything)"])]
#[case("routing: { rules: [{ when: { event: pull_requests }, then: ignore }] }", &["warning 1:37: `routing.rules[0].when.event` names no event of GitHub's: `pull_requests` (did you mean `pull_request`?)"])]
#[case("routing: { rules: [{ then: close, profile: p }] }\nsessions: { profiles: { p: { start: [a] } } }", &["error 1:44: `routing.rules[0].profile` has a meaning only with `then: start`"])]
#[case("routing: { rules: [{ then: start, profile: cluade }] }\nsessions: { profiles: { claude: { start: [a] } } }", &["error 1:44: `routing.rules[0].profile` names no profile of `sessions.profiles`: `cluade` (did you mean `claude`?)"])]
#[case("routing: { rules: [{ then: ignore }, { when: { draft: true }, then: ignore }] }", &["warning 1:22: `routing.rules[0]` matches everything: the rules after it never decide"])]
// Hosts.
#[case("routing: { workspace: { hosts: { h: { cloneUrl: \"https://h/x.git\" } } } }", &["error 1:49: `routing.workspace.hosts.h.cloneUrl` must hold {owner}", "error 1:49: `routing.workspace.hosts.h.cloneUrl` must hold {repo}"])]
#[case("routing: { workspace: { hosts: { h: { cloneUrl: \"ext::sh -c {owner}{repo}\" } } } }", &["error 1:49: `routing.workspace.hosts.h.cloneUrl` must not hold blanks or control characters", "error 1:49: `routing.workspace.hosts.h.cloneUrl` must begin with https://, ssh:// or file://"])]
#[case("routing: { workspace: { hosts: { h: { cloneUrl: \"git://h/{owner}/{repo}/{branch}\" } } } }", &["error 1:49: `routing.workspace.hosts.h.cloneUrl` holds an unknown placeholder {branch} (the placeholders are {owner}, {repo})", "error 1:49: `routing.workspace.hosts.h.cloneUrl` must begin with https://, ssh:// or file://"])]
#[case("routing: { workspace: { hosts: { h: { cloneUrl: \"http://h/{owner}/{repo}\" } } } }", &["error 1:49: `routing.workspace.hosts.h.cloneUrl` may use http only on a loopback address"])]
#[case("routing: { workspace: { hosts: { GitHub.com: {} } } }", &["error 1:34: `routing.workspace.hosts.\"GitHub.com\"` must be a host, in lower case, with a port or without"])]
#[case("routing: { workspace: { removal: { regenerable: [\"*\"] } } }", &["error 1:50: `routing.workspace.removal.regenerable[0]` `*` would let every ignored file be lost"])]
// Sessions.
#[case("sessions: { default: x }", &["error 1:22: `sessions.default` names no profile of `sessions.profiles`: `x` (there is none)"])]
#[case("sessions: { profiles: { p: { start: [] } } }", &["error 1:30: `sessions.profiles.p.start` is empty: it must name a program"])]
#[case("sessions: { profiles: { p: { start: [a, \"x{promt}\"] } } }", &["error 1:41: `sessions.profiles.p.start[1]` holds an unknown placeholder {promt} (did you mean `{prompt}`?)"])]
#[case("sessions: { profiles: { p: { start: [\"{branch}\"] } } }", &["error 1:38: `sessions.profiles.p.start[0]` lets {branch} say which program is run"])]
#[case("sessions: { profiles: { p: { start: [a], env: { INNKEEPER_X: a } } } }", &["error 1:62: `sessions.profiles.p.env.INNKEEPER_X` begins with INNKEEPER_: those are set by the daemon alone"])]
#[case("webhooks: { github: { secretEnv: S } }\nsessions: { profiles: { p: { start: [a], passEnv: [S] } } }", &["error 2:52: `sessions.profiles.p.passEnv[0]` is a secret of the daemon, which no session gets"])]
#[case("sessions: { profiles: { p: { start: [a], prompt: \"{{ x\" } } }", &["error 1:50: `sessions.profiles.p.prompt` is not a template: the prompt, line 1: unexpected end of input, expected end of variable block"])]
#[case("sessions: { profiles: { p: { start: [a], prompt: { file: gone.md } } } }", &["error 1:58: `sessions.profiles.p.prompt.file`: cannot read `/etc/innkeeper/gone.md`: No such file or directory (os error 2)"])]
#[case("sessions: { profiles: { p: { start: [a], prompt: { file: x, issues: y } } } }", &["error 1:58: `sessions.profiles.p.prompt.file` stands alone: a map from events has no `file`"])]
// The rest.
#[case("notify: { on: [session.lots] }", &["error 1:16: `notify.on[0]` names no event: `session.lots` (did you mean `session.lost`?)"])]
#[case("notify: { command: [\"\"] }", &["error 1:21: `notify.command[0]` must name a program"])]
#[case("state: { root: \"\" }", &["error 1:16: `state.root` must not be empty"])]
#[case("state: { root: ~other/x }", &["error 1:16: `state.root`: the home directory of another user is not looked up (write the path in full, or ./ before a name that begins with ~)"])]
#[case("state: { root: ~ }", &["error 1:10: `state.root` has no value (leave the key out to get its default, or write `\"\"`)"])]
fn every_kind_of_error_has_its_message(#[case] text: &str, #[case] messages: &[&str]) {
    assert_eq!(told(text), messages);
}

#[test]
fn all_errors_are_told_at_once_in_the_order_of_the_lines() {
    let lines = told(
        "webhooks:
  github: { port: 70000, path: x }
routing:
  lable: x
  repositories: []
  rules: [{ then: go }]
sessions:
  default: nobody
  profiles:
    p: { start: [a, \"{x}\"], env: { A: 1 } }
notify: { on: [nothing] }
",
    );
    let places: Vec<&str> = lines
        .iter()
        .map(|line| line.split(": ").next().expect("a place"))
        .collect();
    assert_eq!(
        places,
        [
            "error 2:19",
            "error 2:32",
            "error 4:3",
            "error 5:3",
            "error 6:19",
            "error 8:12",
            "error 10:21",
            "error 10:39",
            "error 11:16"
        ],
        "{lines:#?}"
    );
}

#[test]
fn a_profile_with_an_error_of_its_own_still_counts_as_one_that_exists() {
    let lines = told("sessions: { default: p, profiles: { p: { start: 3 } } }");
    assert_eq!(
        lines,
        ["error 1:49: `sessions.profiles.p.start` must be a list, not a number"]
    );
}

#[test]
fn one_wrong_element_of_a_list_does_not_hide_what_is_wrong_with_the_others() {
    let lines = told(
        "routing:
  rules:
    - { when: { event: [3], base: [] }, then: go, profile: nobody }
    - { then: start, profile: nobody }
    - 4
sessions: { profiles: { p: { start: [a, 3, \"{x}\"], resume: 1 } } }
",
    );
    assert_eq!(
        lines,
        [
            "error 3:25: `routing.rules[0].when.event[0]` must be a text, not a number (put it in quotes: \"3\")",
            "error 3:29: `routing.rules[0].when.base` is empty: the rule would never match (leave the key out to match everything)",
            "error 3:47: `routing.rules[0].then` must be one of start, deliver, close, ignore, not `go`",
            "error 3:60: `routing.rules[0].profile` names no profile of `sessions.profiles`: `nobody` (the profiles are p)",
            "warning 4:9: `routing.rules[1]` matches everything: the rules after it never decide",
            "error 4:31: `routing.rules[1].profile` names no profile of `sessions.profiles`: `nobody` (the profiles are p)",
            "error 5:7: `routing.rules[2]` must be a map, not a number",
            "error 6:41: `sessions.profiles.p.start[1]` must be a text, not a number (put it in quotes: \"3\")",
            "error 6:44: `sessions.profiles.p.start[2]` holds an unknown placeholder {x} (the placeholders are {prompt}, {prompt.file}, {session.id}, {workItem}, {checkout}, {branch}, {event}, {action}, {url})",
            "error 6:60: `sessions.profiles.p.resume` must be a list, not a number",
        ]
    );
}

#[test]
fn what_may_be_secret_is_not_quoted_in_a_message() {
    for text in [
        "sessions: { profiles: { p: { start: [a], env: { INNKEEPER_X: CANARY } } } }",
        "sessions:\n  profiles:\n    p:\n      start: [a]\n      env:\n        A: { CANARY: 1 }\n",
        "routing: { workspace: { hosts: { h: { cloneUrl: \"https://u:CANARY@h/{owner}/{repo}\" } } } }",
    ] {
        let errors = parse(text).expect_err(text);
        assert!(!errors.render(false).contains("CANARY"), "{errors}");
        assert!(errors.to_string().contains("innkeeper.yaml:"), "{errors}");
    }
}

#[test]
fn good_addresses_of_hosts_are_taken() {
    for url in [
        "https://mirror.example.com/{owner}/{repo}.git",
        "ssh://git@ghe.example.com:2222/{owner}/{repo}.git",
        "file:///srv/git/{owner}/{repo}.git",
        "http://127.0.0.1:8080/{owner}/{repo}.git",
        "http://[::1]:8080/{owner}/{repo}.git",
    ] {
        let config = accepted(&format!(
            "routing: {{ workspace: {{ hosts: {{ \"ghe.example.com:8443\": {{ cloneUrl: \"{url}\" }} }} }} }}"
        ));
        let host = &config.routing.workspace.hosts["ghe.example.com:8443"];
        assert_eq!(host.clone_url.as_deref(), Some(url));
    }
}

#[test]
fn prompts_are_read_from_their_files_and_checked() {
    let dir = TempDir::new().expect("temporary directory");
    let file = dir.path().join("innkeeper.yaml");
    fs::write(dir.path().join("good.md"), "Look at {{ url }}").expect("write");
    fs::write(dir.path().join("bad.md"), "one\n{% if %}").expect("write");
    fs::write(
        &file,
        "sessions:
  profiles:
    every: { start: [a], prompt: { file: good.md } }
    one: { start: [a], prompt: { issues: { file: good.md }, push: text } }
    none: { start: [a] }
",
    )
    .expect("write");
    let loaded = config::load(&file, &environment()).expect("loads");
    let profiles = &loaded.config.sessions.profiles;
    assert_eq!(
        profiles["every"].prompt.template("push"),
        Some("Look at {{ url }}")
    );
    assert_eq!(
        profiles["one"].prompt.template("issues"),
        Some("Look at {{ url }}")
    );
    assert_eq!(profiles["one"].prompt.template("push"), Some("text"));
    assert_eq!(profiles["one"].prompt.template("pull_request"), None);
    assert_eq!(profiles["none"].prompt.template("push"), None);

    fs::write(
        &file,
        "sessions: { profiles: { p: { start: [a], prompt: { file: bad.md } } } }",
    )
    .expect("write");
    let errors = config::load(&file, &environment()).expect_err("bad template");
    let line = errors.one_line();
    assert!(line.contains("bad.md`, line 2: "), "{line}");

    fs::write(
        &file,
        "sessions: { profiles: { p: { start: [a], prompt: { file: good.md } } } }",
    )
    .expect("write");
    let before = config::load(&file, &environment()).expect("loads").config;
    fs::write(dir.path().join("good.md"), "Something else").expect("write");
    let after = config::load(&file, &environment()).expect("loads").config;
    assert!(matches!(
        after.sessions.profiles["p"].prompt,
        config::Prompt::Every(Template::File(_))
    ));
    assert_eq!(
        config::changes(&before, &after).changed,
        ["sessions.profiles.p.prompt"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_its_name() {
    let dir = TempDir::new().expect("temporary directory");
    let gone = dir.path().join("gone.yaml");
    let errors = config::load(&gone, &environment()).expect_err("gone");
    assert_eq!(
        errors.to_string(),
        format!(
            "error: cannot read the configuration `{}`: No such file or directory (os error 2)",
            gone.display()
        )
    );
    fs::write(&gone, b"log: {}\n# \xff\n").expect("write");
    let errors = config::load(&gone, &environment()).expect_err("not text");
    assert!(
        errors.one_line().ends_with("line 2 is not UTF-8"),
        "{errors}"
    );
    config::load(dir.path(), &environment()).expect_err("a directory");
}

#[test]
fn changes_name_keys_and_say_which_of_them_need_a_restart() {
    let old = accepted("routing: { workspace: { hosts: { \"a.b\": {} } } }");
    assert_eq!(config::changes(&old, &old), config::Changes::default());
    let new = accepted(
        "state: { root: /s }
webhooks: { github: { port: 1, maxBodyBytes: 2048 } }
routing: { label: x, workspace: { root: /w, hosts: { \"c.d\": {} } } }
eventLog: { keepFiles: 3 }
sessions: { profiles: { p: { start: [a] } } }
",
    );
    let changes = config::changes(&old, &new);
    assert_eq!(
        changes.changed,
        [
            "control.socket",
            "eventLog.keepFiles",
            "eventLog.path",
            "routing.label",
            "routing.workspace.hosts.\"a.b\"",
            "routing.workspace.hosts.\"c.d\"",
            "routing.workspace.root",
            "sessions.profiles.p",
            "state.root",
            "webhooks.github.maxBodyBytes",
            "webhooks.github.port"
        ]
    );
    assert_eq!(
        changes.needs_restart,
        [
            "control.socket",
            "eventLog.path",
            "state.root",
            "webhooks.github.port"
        ]
    );
}

#[test]
fn what_is_shown_loads_again_to_the_same_and_hides_what_may_be_secret() {
    let config = accepted(
        "webhooks: { github: { secretEnv: [A, B], secretFiles: [s] } }
routing: { rules: [{ when: { event: issues, fork: false }, then: start, profile: p }] }
sessions:
  default: p
  profiles:
    p: { start: [a, \"{prompt}\"], prompt: { issues: x }, env: { X: y }, timeoutMinutes: 5, maxConcurrent: 2 }
",
    );
    assert_eq!(accepted(&config.to_yaml_without_secrets()), config);
    let with_secret = accepted(
        "sessions: { profiles: { p: { start: [a], env: { MY_API_KEY: CANARY, X: shown } } } }",
    );
    let yaml = with_secret.to_yaml_without_secrets();
    assert!(!yaml.contains("CANARY") && yaml.contains("shown"), "{yaml}");
}

mod secrets {
    use super::*;

    fn resolve(
        text: &str,
        variables: &[(&str, &str)],
    ) -> Result<(Vec<Secret>, Vec<String>), String> {
        let env = Environment::new(variables.iter().copied(), "/");
        match config::resolve_secrets(&accepted(text), &env) {
            Ok((secrets, warnings)) => Ok((
                secrets,
                warnings.iter().map(config::Problem::one_line).collect(),
            )),
            Err(errors) => Err(errors.one_line()),
        }
    }

    fn values(secrets: &[Secret]) -> Vec<&[u8]> {
        secrets.iter().map(Secret::expose).collect()
    }

    const TWO: &str = "webhooks: { github: { secretEnv: [OLD, NEW] } }";

    #[test]
    fn every_variable_that_is_set_is_a_secret_and_one_that_is_not_is_told() {
        let (secrets, warnings) = resolve(TWO, &[("OLD", "a"), ("NEW", "b ")]).expect("resolves");
        assert_eq!(values(&secrets), [&b"a"[..], b"b "]);
        assert!(warnings.is_empty());
        let (secrets, warnings) = resolve(TWO, &[("NEW", "b")]).expect("resolves");
        assert_eq!(values(&secrets), [b"b"]);
        assert_eq!(secrets[0].origin(), "NEW");
        assert_eq!(
            warnings,
            ["the variable OLD is not set; no secret is taken from it"]
        );
    }

    #[test]
    fn a_variable_is_one_secret_whatever_it_holds() {
        let (secrets, warnings) = resolve(TWO, &[("OLD", "abc,"), ("NEW", "b")]).expect("resolves");
        assert_eq!(values(&secrets), [&b"abc,"[..], b"b"]);
        assert_eq!(
            warnings,
            ["the variable OLD holds a comma; it is one secret, not a list"]
        );
    }

    #[test]
    fn an_empty_secret_refuses_although_another_one_is_good() {
        for empty in ["", " ", "\n", " \t\r\n"] {
            let error = resolve(TWO, &[("OLD", empty), ("NEW", "b")]).expect_err("empty");
            assert_eq!(
                error,
                "the variable OLD is set but empty: anybody could sign with it"
            );
        }
        let unsigned = "webhooks: { github: { secretEnv: [OLD], allowUnsigned: true } }";
        resolve(unsigned, &[("OLD", "")]).expect_err("empty");
    }

    #[test]
    fn no_secret_at_all_refuses_unless_none_is_wanted() {
        let error = resolve(TWO, &[]).expect_err("none");
        assert!(error.contains("there is no webhook secret"), "{error}");
        for text in [
            "webhooks: { github: { allowUnsigned: true } }",
            "webhooks: { github: { enabled: false } }",
        ] {
            assert_eq!(resolve(text, &[]).expect("resolves").0.len(), 0, "{text}");
        }
    }

    #[test]
    fn a_secret_in_a_file_loses_its_line_break_and_an_open_file_is_told() {
        let dir = TempDir::new().expect("temporary directory");
        let file = dir.path().join("secret");
        let text = format!(
            "webhooks: {{ github: {{ secretEnv: [], secretFiles: [{}] }} }}",
            file.display()
        );
        let write = |value: &str, mode: u32| {
            fs::write(&file, value).expect("write");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("chmod");
        };

        let error = resolve(&text, &[]).expect_err("no file");
        assert!(error.starts_with("cannot read the secret in"), "{error}");
        write(" s p \r\n", 0o600);
        let (secrets, warnings) = resolve(&text, &[]).expect("resolves");
        assert_eq!(values(&secrets), [b" s p "]);
        assert!(warnings.is_empty());
        write("x", 0o644);
        let (_, warnings) = resolve(&text, &[]).expect("resolves");
        assert!(warnings[0].contains("others may read"), "{warnings:?}");
        write("\n\n", 0o600);
        resolve(&text, &[]).expect_err("empty");
    }

    #[test]
    fn a_secret_does_not_print() {
        let (secrets, _) = resolve(TWO, &[("OLD", "CANARY"), ("NEW", "b")]).expect("resolves");
        assert!(!format!("{secrets:?}").contains("CANARY"));
        let error = resolve(TWO, &[("OLD", "CANARY"), ("NEW", "")]).expect_err("empty");
        assert!(!error.contains("CANARY"));
    }
}

mod files {
    use serde_json::Value;

    use super::*;

    fn repository() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
    }

    fn example() -> String {
        fs::read_to_string(repository().join("config/innkeeper.yaml")).expect("the example")
    }

    /// Takes the `#` away from lines that are examples, and takes away the empty
    /// values that the examples stand for.
    fn with_its_examples(text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let bare = |line: &str| {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            let example = rest
                .strip_prefix('#')
                .filter(|rest| !rest.is_empty() && (!rest.starts_with(' ') || !indent.is_empty()));
            example.map(|rest| format!("{indent}{rest}"))
        };
        let key = |line: &str| line.trim().split(':').next().unwrap_or_default().to_owned();
        let mut result = String::new();
        for (at, line) in lines.iter().enumerate() {
            let is_example = bare(line).is_some_and(|bare| is_setting(&bare));
            let next = lines.get(at + 1).and_then(|next| bare(next));
            let stands_for_nothing = !is_example
                && (line.contains(": {}") || line.contains(": []"))
                && next.is_some_and(|next| key(&next) == key(line));
            if stands_for_nothing {
                continue;
            }
            match bare(line).filter(|_| is_example) {
                Some(bare) => result += &bare,
                None => result += line,
            }
            result.push('\n');
        }
        result
    }

    /// Tells a commented setting from a sentence.
    fn is_setting(line: &str) -> bool {
        let line = line.trim_start().trim_start_matches("- ");
        let name = line.split(':').next().unwrap_or_default();
        line.contains(':') && !name.contains(' ') && !name.starts_with('#')
    }

    /// The keys of a value, and of everything in it, that the schema names.
    fn missing(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match value.get(name) {
                Some(value) => missing(schema, value, &at, found),
                None => found.push(at),
            }
        }
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(first) = items.first() {
            let mut all = first.clone();
            for item in items {
                let all = all.get_mut("when").and_then(Value::as_object_mut);
                if let (Some(all), Some(item)) = (all, item["when"].as_object()) {
                    all.extend(item.clone());
                }
            }
            missing(&schema["items"], &all, at, found);
        }
        if schema["additionalProperties"].is_object() {
            for value in value
                .as_object()
                .into_iter()
                .flat_map(serde_json::Map::values)
            {
                missing(&schema["additionalProperties"], value, at, found);
            }
        }
    }

    #[test]
    fn the_example_is_what_an_empty_file_means() {
        let text = example();
        let loaded = parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.config, accepted(""));
        assert_eq!(loaded.warnings, []);
    }

    #[test]
    fn the_example_holds_every_key_and_its_examples_are_good() {
        let text = with_its_examples(&example());
        let loaded = parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(loaded.warnings, []);
        assert_eq!(loaded.config.routing.rules.len(), 2);
        assert_eq!(loaded.config.sessions.profiles.len(), 1);
        assert_eq!(loaded.config.routing.workspace.hosts.len(), 1);
        let value: Value = serde_yaml::from_str(&text).expect("YAML");
        let mut found = Vec::new();
        missing(&config::schema(), &value, "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_reference_is_what_the_structs_say() {
        let path = repository().join("docs/configuration.md");
        let wanted = config::documentation();
        if std::env::var_os("INNKEEPER_BLESS").is_some_and(|bless| bless == "1") {
            fs::write(&path, &wanted).expect("write");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "docs/configuration.md is out of date; INNKEEPER_BLESS=1 cargo test --test config"
        );
    }

    #[test]
    fn every_key_of_the_schema_says_what_it_means() {
        fn walk(schema: &Value, at: &str) {
            for (name, key) in schema["properties"].as_object().into_iter().flatten() {
                let at = format!("{at}.{name}");
                let text = key["description"].as_str().unwrap_or_default();
                assert!(text.len() > 8, "{at} says nothing");
                walk(key, &at);
                walk(&key["items"], &at);
                walk(&key["additionalProperties"], &at);
            }
        }
        walk(&config::schema(), "");
    }
}

mod every_key {
    use std::rc::Rc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Makes the text of a file, as JSON, which YAML takes, from the value of a key.
    type FileWith = Rc<dyn Fn(Value) -> Value>;

    /// A key of the schema.
    struct Key {
        path: String,
        schema: Value,
        file: FileWith,
    }

    fn keys() -> Vec<Key> {
        let mut found = Vec::new();
        let whole: FileWith = Rc::new(|value| value);
        below(&config::schema(), "", &whole, &mut found);
        assert!(found.len() > 70, "{}", found.len());
        found
    }

    fn below(schema: &Value, path: &str, file: &FileWith, found: &mut Vec<Key>) {
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}").trim_start_matches('.').to_owned();
            let (outer, key, at) = (file.clone(), name.clone(), path.clone());
            let file: FileWith = Rc::new(move |value| {
                let mut map = json!({ &key: value });
                // What must be given beside it.
                if at == format!("routing.rules[0].{key}") && key != "then" {
                    map["then"] = "start".into();
                }
                if at == format!("sessions.profiles.p.{key}") && key != "start" {
                    map["start"] = json!(["a"]);
                }
                outer(map)
            });
            let (listed, named) = (file.clone(), file.clone());
            let listed: FileWith = Rc::new(move |value| listed(json!([value])));
            let named: FileWith = Rc::new(move |value| named(json!({ "p": value })));
            below(schema, &path, &file, found);
            below(&schema["items"], &format!("{path}[0]"), &listed, found);
            below(
                &schema["additionalProperties"],
                &format!("{path}.p"),
                &named,
                found,
            );
            found.push(Key {
                path,
                schema: schema.clone(),
                file,
            });
        }
    }

    /// Returns what is said about a file that gives the key this value.
    fn told_about(key: &Key, value: Value) -> String {
        let text = (key.file)(value).to_string();
        told(&text).join("\n")
    }

    #[test]
    fn refuses_a_value_of_a_wrong_type_and_says_which_key_it_is() {
        for key in keys() {
            for wrong in [json!([[[]]]), json!({ "k": [{ "x": [[]] }] })] {
                let lines = told_about(&key, wrong.clone());
                assert!(
                    lines.starts_with("error") && lines.contains(&format!("`{}", key.path)),
                    "{} = {wrong}: {lines:?}",
                    key.path
                );
            }
            let lines = told_about(&key, Value::Null);
            assert!(
                lines.contains(&format!("`{}` has no value", key.path)),
                "{}: {lines:?}",
                key.path
            );
        }
    }

    #[test]
    fn with_a_range_refuses_what_is_just_outside_and_takes_what_is_just_inside() {
        let mut ranges = 0;
        for key in keys().iter().filter(|key| key.schema["type"] == "integer") {
            ranges += 1;
            let least = key.schema["minimum"].as_i64().expect("a bound");
            let most = key.schema["maximum"].as_i64().expect("a bound");
            let wanted = format!("`{}` must be between", key.path);
            for (value, is_good) in [
                (least - 1, false),
                (least, true),
                (most, true),
                (most + 1, false),
            ] {
                let lines = told_about(key, value.into());
                assert_eq!(
                    !lines.contains(&wanted),
                    is_good,
                    "{} = {value}: {lines}",
                    key.path
                );
            }
        }
        assert!(ranges > 15, "{ranges}");
    }

    #[test]
    fn has_a_neighbour_that_is_unknown() {
        for key in keys()
            .iter()
            .filter(|key| key.schema["properties"].is_object())
        {
            let lines = told_about(key, json!({ "zebra": 1 }));
            let wanted = format!("unknown key `{}.zebra`", key.path);
            assert!(lines.contains(&wanted), "{lines}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-c:\\-\\[\\]{}&*!|>'\"#%@, \n\r\t\u{e9}\u{1f980}\u{85}]{0,60}") {
            if let Err(errors) = parse(&text) {
                prop_assert!(!errors.to_string().is_empty());
            }
        }

        #[test]
        fn no_damage_to_a_good_file_makes_it_panic(at in 0usize..5000, cut in 0usize..200, put in "[:\\-\\[{}|'\" \n\u{e9}]{0,4}") {
            let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/innkeeper.yaml"))
                .expect("the example");
            let chars: Vec<char> = text.chars().collect();
            let at = at.min(chars.len());
            let end = (at + cut).min(chars.len());
            let damaged: String = chars[..at].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
            if let Err(errors) = parse(&damaged) {
                for problem in errors.problems().iter().filter(|problem| problem.path().is_some()) {
                    prop_assert!(problem.position().is_some());
                }
                prop_assert!(!errors.render(true).is_empty());
            }
        }
    }
}
