//! What a daemon needs when it does nothing, has done much, and starts again.
//!
//! - P8: memory of a daemon that is idle; after many deliveries; and with 500
//!   live items.
//! - P9: time until ready with 500 checkouts and what was delivered in the
//!   ledger, after a stop and after a kill.
//! - P11: the demonstration on a built binary.
//!
//! ```text
//! cargo bench --bench daemon [-- --dir DIR] [--json FILE] [--deliveries N]
//!                            [--items N] [--rounds N] [--only P8,P9,P11]
//! ```
//!
//! The figure for P8 is after 100,000 deliveries; the default is 10,000, which
//! is what P9 asks for.

#![recursion_limit = "256"] // for payloads, which are one large literal

mod support;
#[path = "../tests/support/mod.rs"]
mod tests_support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use support::{Bound, Disk, Figure, Figures, HOST, Options, Origin, Pairs, Tail, millis, settled};
use tests_support::payloads::{Payload, PullRequest, Repo, signature};
use tests_support::world::{Config, SECRET, World};

const OWNER: &str = "acme";
const NAME: &str = "widgets";
const CONNECTIONS: usize = 8;
/// Payloads that are sent again and again, each time under a new id.
const VARIANTS: usize = 64;

fn main() -> anyhow::Result<()> {
    let options = Options::parse("daemon", &["--deliveries", "--items", "--rounds", "--only"])?;
    let disk = Disk::of(&options.dir);
    disk.tell(&options.dir);
    let rounds = options.number("--rounds", 5)?;
    let only = options.list("--only", "P8,P9,P11");
    let wanted = |name: &str| only.iter().any(|one| one == name);
    let mut figures = Figures::on(disk);
    let starts = idle(&options, rounds, &mut figures)?;
    if wanted("P8") || wanted("P9") {
        busy(&options, rounds, &starts, &mut figures)?;
    }
    if wanted("P11") {
        demonstration(&options, rounds, &starts, &mut figures)?;
    }
    figures.report(&options.json)
}

fn config() -> Config {
    Config {
        workspace: "maxCheckouts: 100000".into(),
        routing:
            "rules:\n  - { name: all, when: { event: pull_request, action: opened }, then: start }"
                .into(),
        other: "inbox: { maxPending: 1000000 }\neventLog: { rotateBytes: 1000000000 }".into(),
        ..Config::default()
    }
}

/// Megabytes of a process that are in memory.
fn resident(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// Starts a daemon that has nothing to do; returns how long that took.
fn idle(options: &Options, rounds: usize, figures: &mut Figures) -> anyhow::Result<Vec<f64>> {
    let mut starts = Vec::new();
    let mut memory = Pairs::default();
    let mut world = World::new_in(&options.dir, &config());
    for _ in 0..rounds {
        settled(world.root())?;
        let began = Instant::now();
        world.start();
        starts.push(millis(began.elapsed()));
        // What it does after it is ready belongs to being idle.
        std::thread::sleep(Duration::from_millis(500));
        let now = resident(world.pid())?;
        memory.push(now, now);
        world.stop();
    }
    figures.push(Figure {
        name: "P8",
        what: "resident when idle".into(),
        floor: "itself",
        unit: "MB",
        pairs: memory,
        bound: Bound::Value(30.0),
    });
    Ok(starts)
}

/// P8 and P9 on one daemon.
fn busy(
    options: &Options,
    rounds: usize,
    starts: &[f64],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let items = options.number("--items", 500)?;
    let deliveries = options.number("--deliveries", 10_000)?;
    let mut world = World::new_in(&options.dir, &config());
    let origin = Origin::make(
        &world.origins().join(OWNER).join(format!("{NAME}.git")),
        20,
        0,
    )?;
    world.start();
    let idle = resident(world.pid())?;
    let mut tail = Tail::open(&world.state().join("events.jsonl"))?;
    let repo = Repo::new(OWNER, NAME, 7).on(HOST);
    let request = |number: usize| {
        PullRequest::new(&repo, number as u64, &origin.main).branch(&format!("topic-{number}"))
    };
    for number in 1..=items {
        world.accept(&request(number).opened());
    }
    tail.wait("delivery.done", items)?;
    let with_items = resident(world.pid())?;
    // Events that begin nothing, of requests that are there.
    let payloads: Vec<_> = (1..=items.min(VARIANTS))
        .map(|number| request(number).labeled("bug"))
        .collect();
    send(&world, &payloads, deliveries)?;
    let over = ["delivery.done", "delivery.dropped", "delivery.parked"];
    let deadline = Instant::now() + Duration::from_secs(1800);
    while tail.count(&over) < items + deliveries {
        tail.read()?;
        ensure!(Instant::now() < deadline, "deliveries are not worked off");
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = resident(world.pid())?;
    let mut figure = |what: String, now: f64| {
        figures.push(Figure {
            name: "P8",
            what,
            floor: "idle",
            unit: "MB",
            pairs: Pairs {
                floor: vec![idle],
                measured: vec![now],
            },
            bound: Bound::Value(80.0),
        });
    };
    figure(format!("resident with {items} live items"), with_items);
    figure(format!("the same after {deliveries} deliveries"), after);

    let (mut stopped, mut killed) = (Pairs::default(), Pairs::default());
    for round in 0..rounds {
        let floor = starts[round % starts.len()];
        world.stop();
        let began = Instant::now();
        world.start();
        stopped.push(floor, millis(began.elapsed()));
        world.kill();
        let began = Instant::now();
        world.start();
        killed.push(floor, millis(began.elapsed()));
    }
    world.stop();
    for (how, pairs) in [("a stop", stopped), ("kill -9", killed)] {
        figures.push(Figure {
            name: "P9",
            what: format!("start after {how}: {items} checkouts, {deliveries} deliveries"),
            floor: "a first start",
            unit: "ms",
            pairs,
            bound: Bound::Value(2000.0),
        });
    }
    Ok(())
}

/// Sends `count` deliveries over some connections that stay open.
fn send(world: &World, payloads: &[Payload], count: usize) -> anyhow::Result<()> {
    let address = world.webhooks();
    let ready: Vec<(Vec<u8>, Vec<u8>)> = payloads
        .iter()
        .map(|payload| {
            let body = payload.bytes();
            let head = format!(
                "POST /webhooks/github HTTP/1.1\r\nHost: {address}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\
                 X-GitHub-Event: {}\r\nX-Hub-Signature-256: {}\r\nX-GitHub-Delivery: ",
                body.len(),
                payload.event,
                signature(SECRET.as_bytes(), &body)
            );
            let mut rest = b"\r\n\r\n".to_vec();
            rest.extend(body);
            (head.into_bytes(), rest)
        })
        .collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    let mut stream = TcpStream::connect(address)?;
                    stream.set_nodelay(true)?;
                    let mut request = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok(());
                        }
                        let (head, rest) = &ready[number % ready.len()];
                        request.clear();
                        request.extend_from_slice(head);
                        request.extend_from_slice(format!("many-{number:08}").as_bytes());
                        request.extend_from_slice(rest);
                        stream.write_all(&request)?;
                        read_accepted(&mut stream)?;
                    }
                })
            })
            .collect();
        for sender in senders {
            sender
                .join()
                .map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        Ok(())
    })
}

fn read_accepted(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut answer = [0; 2048];
    let mut read = 0;
    loop {
        let count = stream.read(&mut answer[read..])?;
        ensure!(count > 0, "the daemon hung up");
        read += count;
        let text = String::from_utf8_lossy(&answer[..read]);
        ensure!(text.starts_with("HTTP/1.1 202"), "refused: {text}");
        if text.ends_with('}') {
            return Ok(());
        }
    }
}

/// P11.
fn demonstration(
    options: &Options,
    rounds: usize,
    starts: &[f64],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let world = World::new_in(&options.dir, &config());
    let mut pairs = Pairs::default();
    for round in 0..rounds {
        settled(world.root())?;
        let began = Instant::now();
        let status = world
            .command()
            .arg("demo")
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .status()?;
        ensure!(status.success(), "the demonstration ended with {status}");
        pairs.push(starts[round % starts.len()], millis(began.elapsed()));
    }
    figures.push(Figure {
        name: "P11",
        what: "innkeeper demo".into(),
        floor: "a first start",
        unit: "ms",
        pairs,
        bound: Bound::Value(3000.0),
    });
    Ok(())
}
