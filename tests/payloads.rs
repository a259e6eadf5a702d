//! Payloads with GitHub's full set of fields, through parsing and routing; and
//! the remotes and clients that the other tests stand on.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use innkeeper::domain::envelope::{ContentType, Envelope, handled, parse};
use innkeeper::domain::reason::DropReason;
use innkeeper::domain::repo_target::{
    CloneProtocol, HostEntry, HostPolicy, check_branch, repo_target_from_payload,
};
use innkeeper::domain::routing::{
    Action, Decision, ItemFacts, Pattern, Policy, Trust, decide, is_close, is_item_untrusted,
};
use innkeeper::domain::work_item::ItemKind;
use serde_json::{Value, json};
use support::http_git::{HttpGit, Manner, Options};
use support::payloads::{
    Issue, Payload, PullRequest, Repo, check_suite, deliver, ping_of_app, ping_of_organization,
    ping_of_repository, push, signature, unknown_event,
};

const SHA: &str = "0a0b0c0d0e0f0a0b0c0d0e0f0a0b0c0d0e0f0a0b";
const OLDER: &str = "1a1b1c1d1e1f1a1b1c1d1e1f1a1b1c1d1e1f1a1b";

fn repo() -> Repo {
    Repo::new("acme", "app", 7)
}

fn pull() -> PullRequest {
    PullRequest::new(&repo(), 15, SHA)
}

fn policy() -> Policy {
    Policy {
        hosts: HostPolicy::default(),
        repositories: vec![Pattern::repository("acme/*").expect("a glob")],
        label: "innkeeper".into(),
        command: "/innkeeper".into(),
        trust: Trust {
            associations: vec!["OWNER".into(), "MEMBER".into(), "COLLABORATOR".into()],
            ..Trust::default()
        },
        rules: vec![],
    }
}

fn envelope(payload: &Payload) -> Envelope {
    let hosts = HostPolicy::default();
    parse(&payload.event, &hosts, &payload.bytes(), ContentType::Json).expect("authentic")
}

/// Every payload that the builders make.
fn all() -> Vec<(&'static str, Payload)> {
    let (repo, pull, issue) = (repo(), pull(), Issue::new(&repo(), 3));
    vec![
        ("opened", pull.opened()),
        ("opened, draft", pull.clone().draft().opened()),
        ("opened, fork", pull.clone().of_fork("mallory").opened()),
        (
            "opened, deleted fork",
            pull.clone().of_deleted_fork("mallory").opened(),
        ),
        ("synchronize", pull.synchronize(OLDER)),
        ("closed, merged", pull.closed_merged()),
        ("closed, not merged", pull.closed_unmerged()),
        ("reopened", pull.reopened()),
        ("ready for review", pull.ready_for_review()),
        ("labeled", pull.labeled("innkeeper")),
        ("unlabeled", pull.unlabeled("innkeeper")),
        ("edited", pull.edited()),
        (
            "comment on a pull request",
            pull.commented("bob", "MEMBER", "hello"),
        ),
        ("review", pull.reviewed("rev", "MEMBER", "looks good")),
        (
            "review comment",
            pull.review_commented("rev", "MEMBER", "why?"),
        ),
        ("issue opened", issue.opened()),
        ("issue labeled", issue.labeled("innkeeper")),
        ("issue closed", issue.closed()),
        ("issue reopened", issue.reopened()),
        (
            "comment on an issue",
            issue.commented("bob", "MEMBER", "hello"),
        ),
        ("ping of a repository", ping_of_repository(&repo)),
        ("ping of an organisation", ping_of_organization("acme")),
        ("ping of an App", ping_of_app()),
        ("push", push(&repo, "main", OLDER, SHA)),
        ("unknown event", unknown_event(&repo)),
        ("check suite", check_suite(&repo, SHA, "topic")),
    ]
}

#[test]
fn every_payload_is_understood_as_json_and_as_a_form() {
    for (name, payload) in all() {
        let as_json = envelope(&payload);
        let form = payload.form_bytes();
        let as_form = parse(
            &payload.event,
            &HostPolicy::default(),
            &form,
            ContentType::Form,
        );
        assert_eq!(as_form.expect("authentic"), as_json, "{name}");
        assert_eq!(as_json.item.is_some(), handled(&payload.event), "{name}");
        assert_eq!(as_json.url_mismatch, None, "{name}");
    }
}

#[test]
fn a_pull_requests_payload_is_about_as_large_as_github_sends_it() {
    let bytes = pull().opened().bytes().len();
    assert!((20_000..32_000).contains(&bytes), "{bytes}");
}

#[test]
fn what_a_pull_request_says_is_read_from_its_full_payload() {
    let payload = pull()
        .branch("feature/ünï")
        .onto("release/1")
        .label("x")
        .opened();
    let item = envelope(&payload).item.expect("an item");
    assert_eq!(item.name.reference(), "github:acme/app#15");
    assert_eq!(
        (item.name.repo_id, item.kind),
        (Some(7), ItemKind::PullRequest)
    );
    assert_eq!((item.open, item.merged), (Some(true), Some(false)));
    assert_eq!(
        item.url.as_deref(),
        Some("https://github.com/acme/app/pull/15")
    );
    assert_eq!(
        (item.base.as_deref(), item.labels),
        (Some("release/1"), vec!["x".to_owned()])
    );
    let head = item.head.expect("a head");
    assert_eq!(head.sha.as_deref(), Some(SHA));
    assert_eq!(head.branch.as_deref(), Some("feature/ünï"));
    assert!(!head.fork && !head.repository_gone);

    let pushed = envelope(&pull().synchronize(OLDER));
    assert_eq!(pushed.before.as_deref(), Some(OLDER));
    assert_eq!(pushed.after.as_deref(), Some(SHA));
    let merged = envelope(&pull().closed_merged()).item.expect("an item");
    assert_eq!((merged.open, merged.merged), (Some(false), Some(true)));
    let review = envelope(&pull().reviewed("rev", "OWNER", "fine"));
    assert_eq!(review.item.expect("an item").merged, Some(false));
    assert_eq!(review.comment.expect("a review").body, "fine");
}

#[test]
fn forks_and_comments_are_told_apart_by_what_the_payload_lacks() {
    let head = |pull: PullRequest| envelope(&pull.opened()).item.expect("an item").head;
    let fork = head(pull().of_fork("mallory")).expect("a head");
    assert!(fork.fork && !fork.repository_gone);
    let gone = head(pull().of_deleted_fork("mallory")).expect("a head");
    assert!(gone.fork && gone.repository_gone);
    let said = envelope(&pull().commented("bob", "MEMBER", "x"))
        .item
        .expect("an item");
    assert_eq!((said.kind, said.head), (ItemKind::PullRequest, None));
    let said = envelope(&Issue::new(&repo(), 3).commented("bob", "MEMBER", "x"));
    assert_eq!(said.item.expect("an item").kind, ItemKind::Issue);
}

/// Gives every field another type, one at a time: nothing may be refused.
#[test]
fn a_payload_with_any_field_of_another_type_is_understood() {
    let mut tried = vec![];
    for (name, payload) in all() {
        // One payload of each event: the others differ in values only.
        if tried.contains(&payload.event) {
            continue;
        }
        tried.push(payload.event.clone());
        let mut paths = vec![];
        collect(&payload.body, "", &mut paths);
        for path in paths {
            for odd in [json!(null), json!("odd"), json!({ "new": [7] })] {
                let mut body = payload.body.clone();
                *body.pointer_mut(&path).expect("the path was just read") = odd;
                let bytes = serde_json::to_vec(&body).expect("serialises");
                let parsed = parse(
                    &payload.event,
                    &HostPolicy::default(),
                    &bytes,
                    ContentType::Json,
                );
                let envelope = parsed.unwrap_or_else(|error| panic!("{name} {path}: {error}"));
                decide(&policy(), &envelope, &ItemFacts::default());
            }
        }
    }
}

/// Collects the paths of the first four levels, below which nothing is read,
/// without the many addresses that nothing reads either.
fn collect(value: &Value, path: &str, into: &mut Vec<String>) {
    const READ: [&str; 3] = ["clone_url", "ssh_url", "html_url"];
    if path.matches('/').count() > 3 {
        return;
    }
    if let Value::Object(fields) = value {
        for (key, value) in fields {
            if key == "_links" || (key.ends_with("_url") && !READ.contains(&key.as_str())) {
                continue;
            }
            let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            collect(value, &path, into);
            into.push(path);
        }
    }
}

#[test]
fn each_payload_takes_the_path_described() {
    let labelled = pull().label("innkeeper");
    let working = ItemFacts {
        known: true,
        open: true,
        armed: true,
        has_session: true,
        has_checkout: true,
        ..ItemFacts::default()
    };
    let fresh = ItemFacts::default();
    let stranger = labelled.clone().of_fork("mallory").by("mallory", "NONE");
    let elsewhere = PullRequest::new(&Repo::new("evil", "app", 8), 1, SHA).label("innkeeper");
    let foreign = PullRequest::new(&repo().on("evil-github.com"), 1, SHA).label("innkeeper");
    let table = [
        (labelled.opened(), &fresh, Ok(Action::Start)),
        (labelled.reopened(), &fresh, Ok(Action::Start)),
        (
            pull().sent_by("m").labeled("innkeeper"),
            &fresh,
            Ok(Action::Start),
        ),
        (
            stranger.clone().sent_by("m").labeled("innkeeper"),
            &fresh,
            Ok(Action::Start),
        ),
        (
            Issue::new(&repo(), 3).labeled("innkeeper"),
            &fresh,
            Ok(Action::Start),
        ),
        (
            pull().commented("m", "OWNER", "/innkeeper start"),
            &fresh,
            Ok(Action::Start),
        ),
        (
            pull().reviewed("m", "OWNER", "/innkeeper stop"),
            &working,
            Ok(Action::Stop),
        ),
        (pull().synchronize(OLDER), &working, Ok(Action::Deliver)),
        (pull().closed_merged(), &working, Ok(Action::Close)),
        (pull().closed_unmerged(), &working, Ok(Action::Close)),
        (stranger.closed_unmerged(), &working, Ok(Action::Close)),
        (stranger.opened(), &fresh, Err(DropReason::UntrustedActor)),
        (
            pull().commented("x", "NONE", "/innkeeper start"),
            &fresh,
            Err(DropReason::UntrustedActor),
        ),
        (
            pull().commented("x[bot]", "NONE", "done"),
            &working,
            Err(DropReason::Bot),
        ),
        (pull().opened(), &fresh, Err(DropReason::NoRule)),
        (
            elsewhere.opened(),
            &fresh,
            Err(DropReason::RepositoryNotAllowed),
        ),
        (
            foreign.opened(),
            &fresh,
            Err(DropReason::RepositoryNotAllowed),
        ),
        (ping_of_app(), &fresh, Err(DropReason::Ping)),
        (ping_of_organization("acme"), &fresh, Err(DropReason::Ping)),
        (ping_of_repository(&repo()), &fresh, Err(DropReason::Ping)),
        (
            push(&repo(), "main", OLDER, SHA),
            &working,
            Err(DropReason::EventNotHandled),
        ),
        (
            unknown_event(&repo()),
            &working,
            Err(DropReason::EventNotHandled),
        ),
        (
            check_suite(&repo(), SHA, "topic"),
            &working,
            Err(DropReason::EventNotHandled),
        ),
    ];
    for (payload, facts, wanted) in table {
        let found = match decide(&policy(), &envelope(&payload), facts) {
            Decision::Act(act) => Ok(act.action),
            Decision::Drop(reason) => Err(reason),
        };
        let what = (&payload.event, &payload.body["action"]);
        assert_eq!(found, wanted, "{what:?} {facts:?}");
    }
    assert!(is_close(&policy(), &envelope(&stranger.closed_merged())));
    for (pull, untrusted) in [
        (labelled.clone(), false),
        (labelled.clone().of_fork("alice"), true),
        (labelled.clone().of_deleted_fork("alice"), true),
        (labelled.by("x", "CONTRIBUTOR"), true),
    ] {
        let item = envelope(&pull.opened()).item;
        assert_eq!(
            is_item_untrusted(&policy(), item.as_ref(), &fresh),
            untrusted
        );
    }
}

#[test]
fn a_repository_is_found_in_every_payload_that_names_one() {
    for (name, payload) in all() {
        let found = repo_target_from_payload(&payload.body, CloneProtocol::Ssh, "ghe.example");
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        let wanted = payload
            .body
            .get("repository")
            .map(|_| "ssh://git@github.com/acme/app.git");
        assert_eq!(
            found.map(|found| found.clone_url).as_deref(),
            wanted,
            "{name}"
        );
    }
}

/// The installed git is asked whether a branch's name is one; it may be stricter
/// or laxer only where this code says so: lengths.
#[test]
fn branches_are_judged_as_the_installed_git_judges_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in [
        "main",
        "a/b",
        "-x",
        "--upload-pack=x",
        "@",
        "@{",
        "a@{b",
        "a@b",
        "ünïcode/分支",
        "a.b",
        ".a",
        "a.",
        "a/.b",
        "a./b",
        "a..b",
        "a//b",
        "/a",
        "a/",
        "a.lock",
        "a.lock/b",
        "a.LOCK",
        "x.lockx",
        "a b",
        "a~",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a]",
        "a\\b",
        "a\tb",
        "a\nb",
        "a\u{7f}b",
        "a{b}",
        "$(x)",
        "`x`",
        "a;b|c&d",
        "'\"",
        "HEAD",
        "%2e",
    ] {
        let git = git(
            dir.path(),
            &["check-ref-format", &format!("refs/heads/{name}")],
        );
        assert_eq!(check_branch(name).is_ok(), git.status.success(), "{name:?}");
    }
}

#[test]
fn a_delivery_is_posted_signed_and_its_answer_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let server: JoinHandle<Vec<u8>> = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = vec![];
        let mut buffer = vec![0; 65_536];
        loop {
            let count = stream.read(&mut buffer).expect("a request");
            request.extend_from_slice(&buffer[..count]);
            if count == 0 || request.ends_with(b"}") {
                break;
            }
        }
        let answer = "HTTP/1.1 202 Accepted\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        stream.write_all(answer.as_bytes()).expect("an answer");
        request
    });
    let payload = ping_of_app();
    let reply = deliver(address, "/webhooks/github", b"key", "d-1", &payload).expect("an answer");
    assert_eq!((reply.status, reply.header("x-a")), (202, Some("b")));
    assert_eq!(reply.json(), json!({}));
    let request = server.join().expect("the server ended well");
    let request = String::from_utf8(request).expect("text");
    assert!(
        request.starts_with("POST /webhooks/github HTTP/1.1\r\n"),
        "{request}"
    );
    let header = format!(
        "X-Hub-Signature-256: {}\r\n",
        signature(b"key", &payload.bytes())
    );
    assert!(request.contains(&header), "{request}");
}

#[test]
fn a_signature_is_what_github_documents() {
    // The example of GitHub's own documentation on validating deliveries.
    assert_eq!(
        signature(b"It's a Secret to Everybody", b"Hello, World!"),
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    );
}

fn git(dir: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "true")
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .output()
        .expect("git is installed")
}

fn git_ok(dir: &Path, args: &[&str]) -> String {
    let output = git(dir, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns a directory with a working tree `work` and, below `served`, the bare
/// repository `acme/app.git` with one commit.
fn served() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bare = dir.path().join("served/acme/app.git");
    std::fs::create_dir_all(&bare).expect("a directory");
    git_ok(&bare, &["init", "--bare", "-b", "main", "."]);
    git_ok(dir.path(), &["init", "-b", "main", "work"]);
    let work = dir.path().join("work");
    git_ok(&work, &["commit", "--allow-empty", "-m", "first"]);
    git_ok(
        &work,
        &[
            "push",
            bare.to_str().expect("a text"),
            "main",
            "main:refs/pull/1/head",
        ],
    );
    dir
}

#[test]
fn a_repository_is_cloned_and_pushed_to_over_smart_http() {
    let dir = served();
    let options = Options {
        receive_pack: true,
        ..Options::default()
    };
    let server = HttpGit::serve_with(&dir.path().join("served"), options);
    let url = server.url("acme", "app");
    git_ok(dir.path(), &["clone", &url, "copy"]);
    let copy = dir.path().join("copy");
    git_ok(&copy, &["fetch", "origin", "refs/pull/1/head"]);
    assert_eq!(server.reads(), 2);
    assert!(
        server
            .seen()
            .iter()
            .any(|seen| seen.protocol.as_deref() == Some("version=2"))
    );
    // Beyond git's buffer of 1 MB the body comes in chunks.
    let noise: Vec<u8> = (0..750_000_u32)
        .flat_map(|n| {
            n.wrapping_mul(2_654_435_761)
                .rotate_left(n % 31)
                .to_le_bytes()
        })
        .collect();
    std::fs::write(copy.join("noise"), noise).expect("a file");
    git_ok(&copy, &["add", "noise"]);
    git_ok(&copy, &["commit", "-m", "second"]);
    git_ok(&copy, &["push", "origin", "HEAD:refs/heads/topic"]);
    assert_eq!(server.pushes(), 1);
    let pushed = git_ok(
        &dir.path().join("served/acme/app.git"),
        &["rev-parse", "topic"],
    );
    assert_eq!(pushed, git_ok(&copy, &["rev-parse", "HEAD"]));
    assert!(
        !git(dir.path(), &["ls-remote", &server.url("acme", "none")])
            .status
            .success()
    );

    let hosts = HostPolicy {
        hosts: [(
            "github.com".to_owned(),
            HostEntry {
                clone_url: Some(server.template()),
            },
        )]
        .into(),
        ..HostPolicy::default()
    };
    let target = hosts.target("github.com", "acme", "app").expect("served");
    assert_eq!(target.clone_url, url);
}

#[test]
fn pushing_needs_the_option_and_reading_the_password() {
    let dir = served();
    let root = dir.path().join("served");
    let reading = HttpGit::serve(&root);
    let work = dir.path().join("work");
    let push = git(
        &work,
        &["push", &reading.url("acme", "app"), "main:refs/heads/x"],
    );
    assert!(!push.status.success());

    let options = Options {
        credentials: Some(("inn".into(), "keeper?".into())),
        ..Options::default()
    };
    let server = HttpGit::serve_with(&root, options);
    let url = server.url("acme", "app");
    assert!(!git(dir.path(), &["ls-remote", &url]).status.success());
    let with_password = url.replace("http://", "http://inn:keeper%3F@");
    assert!(git_ok(dir.path(), &["ls-remote", &with_password]).contains("refs/heads/main"));
    assert!(server.seen().iter().any(|seen| seen.authorized));
}

#[test]
fn a_remote_can_be_silent_stalling_late_or_refusing() {
    let dir = served();
    let server = HttpGit::serve(&dir.path().join("served"));
    let url = server.url("acme", "app");
    let limit = Duration::from_mins(1);
    for manner in [Manner::Silent, Manner::Stalling { after: 10 }] {
        server.set_manner(manner);
        let before = server.requests();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| git(dir.path(), &["ls-remote", &url]));
            server.await_requests(before + 1, limit);
            assert!(!reading.is_finished(), "{manner:?}");
            server.set_manner(Manner::Prompt);
            let output = reading.join().expect("git was run");
            assert!(output.status.success(), "{manner:?} {output:?}");
        });
    }
    let delay = Duration::from_millis(300);
    server.set_manner(Manner::Late(delay));
    let started = Instant::now();
    git_ok(dir.path(), &["ls-remote", &url]);
    assert!(started.elapsed() >= delay);
    server.set_manner(Manner::Refusing(503));
    assert!(!git(dir.path(), &["ls-remote", &url]).status.success());
}

#[test]
fn a_server_that_is_dropped_lets_its_clients_go() {
    let dir = served();
    let server = HttpGit::serve(&dir.path().join("served"));
    server.set_manner(Manner::Silent);
    let url = server.url("acme", "app");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| git(dir.path(), &["ls-remote", &url]));
        server.await_requests(1, Duration::from_mins(1));
        drop(server);
        assert!(!reading.join().expect("git was run").status.success());
    });
}
