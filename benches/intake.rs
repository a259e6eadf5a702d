//! How fast signed deliveries are answered, each on disk before its 202.
//!
//! Two servers, the same but for the store, take the same load in turn: the
//! floor verifies and answers, the real one stores too, with the event log
//! running. What counts is the ratio of the two, from pairs of rounds.
//!
//! ```text
//! cargo bench --bench intake [-- --dir DIR] [--rounds N] [--seconds S]
//! ```
//!
//! The state is made in a directory of its own below DIR, else below
//! `$INNKEEPER_BENCH_DIR`, else the system's temporary directory. Which file
//! system that is on decides a lot, so it is told.

#![recursion_limit = "256"] // for payloads, which are one large literal
#![expect(clippy::print_stdout, reason = "the figures are this program's answer")]

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use comfy_table::{Table, presets};
use hmac::{Hmac, KeyInit as _, Mac as _};
use innkeeper::event_log::{EventLog, EventLogSettings};
use innkeeper::inbox::{Accepted, Inbox, InboxLimits};
use innkeeper::ingress::{
    Ingress, IngressSettings, Secrets, ServeLimits, accepted_response, serve,
};
use innkeeper::store::Store;
use serde_json::{Value, json};
use sha2::Sha256;
use support::Disk;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "benchmark";
const CONNECTIONS: usize = 16;
const VARIANTS: u64 = 64;
const PACED_PER_SECOND: u32 = 500;

struct Options {
    dir: PathBuf,
    rounds: usize,
    seconds: u64,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options {
        dir: std::env::var_os("INNKEEPER_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
        rounds: 5,
        seconds: 4,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| anyhow::anyhow!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--dir" => options.dir = PathBuf::from(value()?),
            "--rounds" => options.rounds = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            // Cargo says so to every benchmark.
            "--bench" => {}
            other => anyhow::bail!("unknown argument {other}"),
        }
    }
    Ok(options)
}

/// A signed payload, all but the delivery's id.
struct Payload {
    before_id: Vec<u8>,
    after_id: Vec<u8>,
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    let dir = tempfile::Builder::new()
        .prefix("innkeeper-bench-")
        .tempdir_in(&options.dir)?;
    let disk = Disk::of(dir.path());
    disk.tell(dir.path());
    let payloads = Arc::new(payloads());
    let server = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let store = Store::open(&dir.path().join("innkeeper.db"), "bench")?;
    let log = server.block_on(EventLog::open(
        store.clone(),
        EventLogSettings::at(dir.path().join("events.jsonl")),
    ))?;
    let limits = InboxLimits {
        max_pending: 100_000_000,
        ..InboxLimits::default()
    };
    let inbox = Inbox::new(store.clone(), dir.path().to_owned(), limits, || {});
    let secrets = Secrets::new(&[SECRET])?;
    let ingress = Ingress::new(inbox, IngressSettings::default(), secrets);
    let stop = CancellationToken::new();
    let floor = Router::new()
        .fallback(verify_only)
        .with_state(ingress.clone());
    let floor = server.block_on(start(floor, &stop))?;
    let real = server.block_on(start(ingress.router(), &stop))?;

    let length = Duration::from_secs(options.seconds);
    let mut ids = 0;
    let mut run = |address, pace, length| {
        ids += 1;
        client.block_on(load(address, Arc::clone(&payloads), ids, pace, length))
    };
    run(floor, None, length / 4)?;
    run(real, None, length / 4)?;
    let (mut floors, mut reals) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        floors.push(run(floor, None, length)?);
        reals.push(run(real, None, length)?);
    }
    let pace = Some(PACED_PER_SECOND);
    let paced_floor = run(floor, pace, length * 2)?;
    let paced_real = run(real, pace, length * 2)?;

    stop.cancel();
    server.block_on(async {
        log.close().await;
        store.close().await;
    });
    report(&disk, &payloads, &floors, &reals, &paced_floor, &paced_real);
    Ok(())
}

async fn verify_only(State(ingress): State<Ingress>, request: Request) -> Response {
    match ingress.verify(request).await {
        Ok(verified) => accepted_response(verified.id(), Accepted::New(0)),
        Err(problem) => problem.into_response(),
    }
}

async fn start(router: Router, stop: &CancellationToken) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(
        listener,
        router,
        ServeLimits::default(),
        stop.clone(),
    ));
    Ok(address)
}

/// What one round measured.
struct Round {
    per_second: f64,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Round {
    fn millis_at(&self, part: usize, of: usize) -> f64 {
        let index = (self.latencies.len() * part / of).min(self.latencies.len() - 1);
        self.latencies[index].as_secs_f64() * 1000.0
    }
}

/// Sends deliveries over all connections, as fast as they are answered or
/// `pace` times a second; a paced one is late from the moment it was due.
async fn load(
    address: SocketAddr,
    payloads: Arc<Vec<Payload>>,
    round: u64,
    pace: Option<u32>,
    length: Duration,
) -> anyhow::Result<Round> {
    let began = Instant::now();
    let mut connections = Vec::new();
    for connection in 0..CONNECTIONS {
        let payloads = Arc::clone(&payloads);
        connections.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut latencies = Vec::new();
            let mut request = Vec::new();
            for n in 0_u32.. {
                let due = match pace {
                    None => Instant::now(),
                    Some(pace) => {
                        let place = n * u32::try_from(CONNECTIONS)? + u32::try_from(connection)?;
                        let due = began + Duration::from_secs(1) * place / pace;
                        tokio::time::sleep_until(due.into()).await;
                        due
                    }
                };
                if began.elapsed() >= length {
                    break;
                }
                let id = format!("{round:08x}-{connection:04x}-4000-8000-{n:012x}");
                let payload = &payloads[(n as usize + connection * 7) % payloads.len()];
                request.clear();
                request.extend_from_slice(&payload.before_id);
                request.extend_from_slice(id.as_bytes());
                request.extend_from_slice(&payload.after_id);
                stream.write_all(&request).await?;
                read_accepted(&mut stream).await?;
                latencies.push(due.elapsed());
            }
            anyhow::Ok(latencies)
        }));
    }
    let mut latencies = Vec::new();
    for connection in connections {
        latencies.extend(connection.await??);
    }
    let took = began.elapsed();
    latencies.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_second = latencies.len() as f64 / took.as_secs_f64();
    Ok(Round {
        per_second,
        latencies,
    })
}

async fn read_accepted(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut answer = [0; 1024];
    let mut read = 0;
    loop {
        let count = stream.read(&mut answer[read..]).await?;
        anyhow::ensure!(count > 0, "the server hung up");
        read += count;
        if answer[..read].ends_with(b"\"accepted\"}") {
            anyhow::ensure!(answer.starts_with(b"HTTP/1.1 202"), "not taken");
            return Ok(());
        }
        anyhow::ensure!(
            answer.starts_with(b"HTTP/1.1 202"),
            "refused: {}",
            String::from_utf8_lossy(&answer[..read])
        );
    }
}

/// Makes signed payloads as a `pull_request` event has them: about 25 KB, most
/// of it addresses, ids and users that repeat with differences.
fn payloads() -> Vec<Payload> {
    (0..VARIANTS)
        .map(|variant| {
            let body = payload(variant).to_string().into_bytes();
            let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())
                .expect("a key may have any length");
            mac.update(&body);
            let signature = hex::encode(mac.finalize().into_bytes());
            let before_id = format!(
                "POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\
                 User-Agent: GitHub-Hookshot/044aadd\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nX-GitHub-Event: pull_request\r\n\
                 X-GitHub-Hook-ID: 292430182\r\nX-Hub-Signature-256: sha256={signature}\r\n\
                 X-GitHub-Delivery: ",
                body.len()
            );
            let mut after_id = b"\r\n\r\n".to_vec();
            after_id.extend_from_slice(&body);
            Payload {
                before_id: before_id.into_bytes(),
                after_id,
            }
        })
        .collect()
}

/// Numbers that look like ids, the same in every run.
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn id(&mut self) -> u64 {
        self.next() % 3_000_000_000
    }

    fn sha(&mut self) -> String {
        format!("{:016x}{:016x}{:08x}", self.next(), self.next(), self.id())
    }

    fn words(&mut self, count: usize) -> String {
        const WORDS: [&str; 24] = [
            "retry",
            "the",
            "worker",
            "when",
            "connection",
            "is",
            "reset",
            "by",
            "peer",
            "so",
            "that",
            "a",
            "delivery",
            "never",
            "waits",
            "for",
            "two",
            "locks",
            "at",
            "once",
            "and",
            "fix",
            "test",
            "timeouts",
        ];
        let words = (0..count).map(|_| {
            let index = usize::try_from(self.next() % 24).unwrap_or(0);
            WORDS[index]
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn user(ids: &mut Ids, login: &str) -> Value {
    let api = format!("https://api.github.com/users/{login}");
    let id = ids.id();
    json!({
        "login": login, "id": id, "node_id": format!("MDQ6VXNlcn{id:x}"),
        "avatar_url": format!("https://avatars.githubusercontent.com/u/{id}?v=4"),
        "gravatar_id": "", "url": api, "html_url": format!("https://github.com/{login}"),
        "followers_url": format!("{api}/followers"),
        "following_url": format!("{api}/following{{/other_user}}"),
        "gists_url": format!("{api}/gists{{/gist_id}}"),
        "starred_url": format!("{api}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{api}/subscriptions"),
        "organizations_url": format!("{api}/orgs"), "repos_url": format!("{api}/repos"),
        "events_url": format!("{api}/events{{/privacy}}"),
        "received_events_url": format!("{api}/received_events"),
        "type": "User", "user_view_type": "public", "site_admin": false
    })
}

fn repository(ids: &mut Ids, owner: &str, name: &str) -> Value {
    const LINKS: [&str; 37] = [
        "forks",
        "keys{/key_id}",
        "collaborators{/collaborator}",
        "teams",
        "hooks",
        "issues/events{/number}",
        "events",
        "assignees{/user}",
        "branches{/branch}",
        "tags",
        "git/blobs{/sha}",
        "git/tags{/sha}",
        "git/refs{/sha}",
        "git/trees{/sha}",
        "statuses/{sha}",
        "languages",
        "stargazers",
        "contributors",
        "subscribers",
        "subscription",
        "commits{/sha}",
        "git/commits{/sha}",
        "comments{/number}",
        "issues/comments{/number}",
        "contents/{+path}",
        "compare/{base}...{head}",
        "merges",
        "{archive_format}{/ref}",
        "downloads",
        "issues{/number}",
        "pulls{/number}",
        "milestones{/number}",
        "notifications{?since,all,participating}",
        "labels{/name}",
        "releases{/id}",
        "deployments",
        "actions",
    ];
    let full = format!("{owner}/{name}");
    let mut value = json!({
        "id": ids.id(), "node_id": format!("R_kgDO{:x}", ids.id()), "name": name,
        "full_name": full, "private": false, "owner": user(ids, owner),
        "html_url": format!("https://github.com/{full}"), "description": ids.words(12),
        "fork": false, "url": format!("https://api.github.com/repos/{full}"),
        "created_at": "2021-04-12T09:33:20Z", "updated_at": "2026-11-29T18:02:11Z",
        "pushed_at": "2026-11-30T07:41:55Z", "git_url": format!("git://github.com/{full}.git"),
        "ssh_url": format!("git@github.com:{full}.git"),
        "clone_url": format!("https://github.com/{full}.git"), "size": ids.id() % 100_000,
        "stargazers_count": ids.id() % 5000, "watchers_count": ids.id() % 5000,
        "language": "Rust", "has_issues": true, "has_projects": true, "has_wiki": false,
        "forks_count": ids.id() % 900, "archived": false, "disabled": false,
        "open_issues_count": ids.id() % 300, "license": {"key": "apache-2.0",
        "name": "Apache License 2.0", "spdx_id": "Apache-2.0"}, "allow_forking": true,
        "topics": ["daemon", "git", "webhooks"], "visibility": "public",
        "default_branch": "main", "allow_squash_merge": true, "allow_merge_commit": false,
        "allow_rebase_merge": true, "delete_branch_on_merge": true
    });
    for link in LINKS {
        let name = link.split(['{', '/']).find(|part| !part.is_empty());
        value[format!("{}_url", name.unwrap_or("archive"))] =
            json!(format!("https://api.github.com/repos/{full}/{link}"));
    }
    value
}

fn payload(variant: u64) -> Value {
    let mut ids = Ids(variant);
    let ids = &mut ids;
    let number = 100 + variant;
    let api = format!("https://api.github.com/repos/acme/app-{variant}");
    let html = format!("https://github.com/acme/app-{variant}/pull/{number}");
    let name = format!("app-{variant}");
    let side = |ids: &mut Ids, branch: &str| {
        json!({
            "label": format!("acme:{branch}"), "ref": branch, "sha": ids.sha(),
            "user": user(ids, "acme"), "repo": repository(ids, "acme", &name)
        })
    };
    let labels: Vec<_> = ["innkeeper", "bug", "area: intake"]
        .iter()
        .map(|label| {
            json!({"id": ids.id(), "node_id": format!("LA_{:x}", ids.id()), "name": label,
                "url": format!("{api}/labels/{label}"), "color": "d73a4a", "default": false,
                "description": ids.words(8)})
        })
        .collect();
    json!({
        "action": "synchronize", "number": number,
        "pull_request": {
            "url": format!("{api}/pulls/{number}"), "id": ids.id(),
            "node_id": format!("PR_kwDO{:x}", ids.id()), "html_url": html,
            "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"),
            "issue_url": format!("{api}/issues/{number}"), "number": number, "state": "open",
            "locked": false, "title": ids.words(7), "user": user(ids, "alice"),
            "body": ids.words(350), "created_at": "2026-11-28T10:12:01Z",
            "updated_at": "2026-11-30T07:41:56Z", "closed_at": null, "merged_at": null,
            "merge_commit_sha": ids.sha(), "assignees": [user(ids, "bob")],
            "requested_reviewers": [user(ids, "carol"), user(ids, "dave")],
            "labels": labels, "draft": false,
            "commits_url": format!("{api}/pulls/{number}/commits"),
            "review_comments_url": format!("{api}/pulls/{number}/comments"),
            "statuses_url": format!("{api}/statuses/{}", ids.sha()),
            "head": side(ids, "feature/retry-the-worker"), "base": side(ids, "main"),
            "author_association": "MEMBER", "auto_merge": null, "merged": false,
            "mergeable": null, "mergeable_state": "unknown", "comments": 3,
            "review_comments": 5, "maintainer_can_modify": false, "commits": 4,
            "additions": 120, "deletions": 37, "changed_files": 9
        },
        "before": ids.sha(), "after": ids.sha(),
        "repository": repository(ids, "acme", &name),
        "organization": user(ids, "acme"), "sender": user(ids, "alice")
    })
}

fn median(rounds: &[Round]) -> f64 {
    let mut all: Vec<_> = rounds.iter().map(|round| round.per_second).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn report(
    disk: &Disk,
    payloads: &[Payload],
    floors: &[Round],
    reals: &[Round],
    paced_floor: &Round,
    paced_real: &Round,
) {
    let mut ratios: Vec<_> = floors
        .iter()
        .zip(reals)
        .map(|(floor, real)| real.per_second / floor.per_second)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let target = if disk.lacks_journal || disk.kind == "tmpfs" {
        0.30
    } else {
        0.20
    };
    let bytes = payloads.iter().map(|one| one.after_id.len()).sum::<usize>() / payloads.len();
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["", "floor", "durable", "ratio", "target"]);
    table.add_row([
        format!(
            "answers/s, {CONNECTIONS} connections, {bytes} bytes (median of {})",
            reals.len()
        ),
        format!("{:.0}", median(floors)),
        format!("{:.0}", median(reals)),
        format!("{ratio:.2}"),
        format!(">= {target:.2}"),
    ]);
    for (name, part, of, target) in [("p50", 1, 2, ""), ("p99", 99, 100, "<= 15 ms")] {
        table.add_row([
            format!("{name} at {PACED_PER_SECOND}/s"),
            format!("{:.1} ms", paced_floor.millis_at(part, of)),
            format!("{:.1} ms", paced_real.millis_at(part, of)),
            String::new(),
            target.to_owned(),
        ]);
    }
    println!("{table}");
    let round = |round: &Round| {
        json!({
            "per_second": round.per_second, "answers": round.latencies.len(),
            "p50_ms": round.millis_at(1, 2), "p99_ms": round.millis_at(99, 100)
        })
    };
    let all = json!({
        "figure": "P6", "file_system": disk.kind, "lacks_journal": disk.lacks_journal,
        "body_bytes": bytes, "connections": CONNECTIONS, "ratio": ratio, "target": target,
        "floor": floors.iter().map(round).collect::<Vec<_>>(),
        "durable": reals.iter().map(round).collect::<Vec<_>>(),
        "paced": {
            "per_second": PACED_PER_SECOND,
            "floor": round(paced_floor), "durable": round(paced_real)
        }
    });
    println!("{all}");
}
