//! The campaign: what happens, in which order, and whether it was right.
//!
//! One thread acts and judges. It acts on an item only while none of the item's
//! deliveries is under way, so that what was written last is known; the daemon
//! has many items to work on at any time, and dies while it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use innkeeper::process::CrashPoint;
use serde_json::Value;

use crate::agent::Agent;
use crate::inn::{names, repo, signal, told, violations, world_of_scribes};
use crate::item::{Archived, Checkout, Item};
use crate::log::Log;
use crate::random::Random;
use crate::snapshot::{Snapshot, missing_in};
use crate::support::payloads::Payload;
use crate::support::world::{Origin, World, git_output};

/// How long anything may take that is waited for, kills and retries included.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much of everything there is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub seed: u64,
    pub items: u64,
    pub repos: u64,
    pub time: Duration,
}

/// What happened, for the report.
#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    deaths_at_points: u64,
    stops: u64,
    gits_killed: u64,
    deliveries: u64,
    duplicates: u64,
    restores: u64,
    exits: u64,
    moved_away: u64,
    acts: BTreeMap<&'static str, u64>,
    /// Files and bytes that were compared, one by one.
    files: u64,
    bytes: u64,
}

pub struct Campaign {
    scale: Scale,
    random: Random,
    world: World,
    origins: Vec<Origin>,
    items: Vec<Item>,
    log: Log,
    figures: Figures,
    /// The point at which the running daemon is to die, if any.
    armed: bool,
    next_death: Instant,
    accepted: Vec<(String, Payload)>,
    comments: Vec<(usize, String, String)>,
    faults: Vec<String>,
    written: u64,
}

impl Campaign {
    pub fn new(scale: Scale) -> Self {
        let mut world = world_of_scribes(
            |config| {
                config.routing = format!("maxConcurrentDispatches: 8\n{}", config.routing);
                config.workspace = "maxCheckouts: 1000".into();
            },
            "",
        );
        let mut random = Random::new(scale.seed);
        let origins: Vec<Origin> = (0..scale.repos)
            .map(|number| world.origin("acme", &format!("widgets-{number}")))
            .collect();
        // All but a few are of the first repository.
        let items = (1..=scale.items)
            .map(|number| {
                let origin = if number % 5 == 0 {
                    usize::try_from(random.below(scale.repos)).expect("few")
                } else {
                    0
                };
                let branch = (number % 6 != 0).then(|| format!("topic-{number}"));
                let head = branch.as_ref().map_or_else(String::new, |name| {
                    origins[origin].pull_request(number, name)
                });
                Item {
                    repo: repo("acme", &format!("widgets-{origin}"), 70 + origin as u64),
                    origin,
                    number,
                    branch,
                    head,
                    ever_opened: false,
                    open: false,
                    checkout: None,
                    outstanding: Vec::new(),
                    read: 0,
                    archives: Vec::new(),
                }
            })
            .collect();
        // A third of them as clones.
        let yaml = fs::read_to_string(world.config_file()).expect("a configuration");
        let rule = "rules:\n    - { name: cloned, when: { branch: \"topic-*[147]\" }, then: start, strategy: clone }";
        fs::write(world.config_file(), yaml.replace("rules:", rule)).expect("written");
        let log = Log::new(world.state().join("events.jsonl"));
        world.start();
        Self {
            scale,
            random,
            world,
            origins,
            items,
            log,
            figures: Figures::default(),
            armed: false,
            next_death: Instant::now() + Duration::from_secs(2),
            accepted: Vec::new(),
            comments: Vec::new(),
            faults: Vec::new(),
            written: 0,
        }
    }

    /// Goes on for the time that was given, ends everything, and judges.
    ///
    /// # Panics
    ///
    /// With everything that was wrong.
    pub fn run(mut self) {
        let begun = Instant::now();
        let mut told = Instant::now();
        while begun.elapsed() < self.scale.time && self.faults.is_empty() {
            self.tend();
            self.settle_all();
            self.step();
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                self.say_progress(begun);
            }
        }
        self.end();
        self.report(begun);
        if !self.faults.is_empty() {
            let (seed, faults) = (self.scale.seed, self.faults.join("\n"));
            let world = self.world.leave();
            panic!("seed {seed}, see {}:\n{faults}", world.display());
        }
    }

    #[allow(
        clippy::print_stderr,
        reason = "who runs it for hours wants to see it go on"
    )]
    fn say_progress(&self, begun: Instant) {
        eprintln!(
            "{:>5} s: {} deliveries, {} deaths, {} removed, {} archived, {} restored",
            begun.elapsed().as_secs(),
            self.figures.deliveries,
            self.figures.kills + self.figures.deaths_at_points,
            self.log.count("workspace.cleaned"),
            self.log.count("archive.created"),
            self.figures.restores,
        );
    }

    /// Replaces a daemon that died, and has one die when it is time.
    fn tend(&mut self) {
        if self.world.has_died() {
            if self.armed {
                self.figures.deaths_at_points += 1;
            } else {
                self.faults.push("the daemon died by itself".into());
            }
            self.start();
        }
        if Instant::now() < self.next_death {
            return;
        }
        self.next_death = Instant::now() + Duration::from_millis(200 + self.random.below(4000));
        match self.random.below(10) {
            0 => {
                self.world.signal("TERM");
                let deadline = Instant::now() + PATIENCE;
                let ended = loop {
                    match self.world.ended() {
                        Some(status) => break status,
                        None => assert!(Instant::now() < deadline, "the daemon does not stop"),
                    }
                    pause();
                };
                if ended.success() {
                    self.figures.stops += 1;
                } else if self.armed {
                    self.figures.deaths_at_points += 1;
                } else {
                    self.faults.push(format!("the daemon stopped with {ended}"));
                }
                self.start();
            }
            1 | 2 => self.figures.gits_killed += kill_gits(self.world.pid()),
            _ => {
                if !self.world.has_died() {
                    self.world.kill();
                }
                self.figures.kills += 1;
                self.start();
            }
        }
    }

    /// Starts a daemon; every other one is to die at some named point.
    fn start(&mut self) {
        loop {
            let points = CrashPoint::ALL;
            let point = self.random.one_of(points).expect("there are some").name();
            let nth = 1 + self.random.below(6);
            self.armed = self.random.percent(50);
            let order = self.armed.then(|| format!("{point}:{nth}"));
            let started = self.world.try_start_with(|command| {
                if let Some(order) = order {
                    command.env("INNKEEPER_CRASH_AT", order);
                }
            });
            match started {
                Ok(()) => return,
                Err(told) => {
                    assert!(self.armed && told.contains("signal: 9"), "{told}");
                    self.figures.deaths_at_points += 1;
                }
            }
        }
    }

    /// Does one thing to one item that nobody works on.
    fn step(&mut self) {
        let idle: Vec<usize> = (0..self.items.len())
            .filter(|index| self.items[*index].outstanding.is_empty())
            .collect();
        let Some(index) = self.random.one_of(&idle).copied() else {
            pause();
            return;
        };
        let item = &self.items[index];
        let away = item.checkout.as_ref().is_some_and(|it| it.away.is_some());
        match (item.open, &item.checkout) {
            _ if away => self.bring_back(index),
            (false, None) if !item.archives.is_empty() && self.random.percent(40) => {
                self.restore(index);
            }
            (false, _) => self.open(index),
            (true, None) => self.comment(index),
            (true, Some(_)) => match self.random.below(100) {
                0..60 => self.write(index),
                60..66 => self.synchronize(index),
                66..72 => self.push(index),
                72..78 => self.comment(index),
                78..80 => self.repeat(),
                80..83 => self.exit(index),
                83..85 => self.move_away(index),
                85..88 => {
                    self.comment(index);
                    self.close(index);
                }
                _ => self.close(index),
            },
        }
    }

    fn deliver(&mut self, index: usize, what: &str, payload: Payload) -> String {
        let id = format!("c-{what}-{}", self.accepted.len());
        self.send(&id, &payload);
        self.accepted.push((id.clone(), payload));
        self.items[index].outstanding.push(id.clone());
        self.figures.deliveries += 1;
        id
    }

    /// Sends until it is accepted.
    fn send(&mut self, id: &str, payload: &Payload) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend();
            match self.world.try_deliver_as(id, payload) {
                Ok(reply) if reply.status == 202 => return,
                Ok(reply) => assert_eq!(reply.status, 503, "{id}"),
                Err(_) => {}
            }
            assert!(Instant::now() < deadline, "{id} is not accepted");
            pause();
        }
    }

    fn open(&mut self, index: usize) {
        let payload = self.items[index].opening();
        self.deliver(index, "open", payload);
        self.items[index].ever_opened = true;
        self.items[index].open = true;
        if self.random.percent(30) {
            self.comment(index);
        }
        if self.random.percent(5) {
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        let merged = self.random.percent(20);
        if merged && let Some(branch) = self.items[index].branch.clone() {
            // What is merged is on the remote by then.
            let head = self.items[index].head.clone();
            let origin = &self.origins[self.items[index].origin];
            origin.bare_git(&["update-ref", &format!("refs/heads/merged/{branch}"), &head]);
        }
        let payload = self.items[index].closing(merged);
        self.deliver(index, "close", payload);
        self.items[index].open = false;
    }

    fn comment(&mut self, index: usize) {
        let text = format!("said-{}", self.accepted.len());
        let payload = self.items[index].comment(&text);
        let id = self.deliver(index, "comment", payload);
        self.comments.push((index, id, text));
    }

    /// GitHub sends a delivery again.
    fn repeat(&mut self) {
        if let Some((id, payload)) = self.random.one_of(&self.accepted).cloned() {
            self.send(&id, &payload);
            self.figures.duplicates += 1;
        }
    }

    fn write(&mut self, index: usize) {
        self.written += 1;
        let mark = format!("{}-{}", self.scale.seed, self.written);
        let home = self.world.root().join("home");
        let Some(checkout) = &mut self.items[index].checkout else {
            return;
        };
        let agent = Agent {
            home: &home,
            dir: &checkout.path,
            mark,
        };
        let what = if self.random.percent(7) {
            agent.tidy();
            "tidied up"
        } else {
            let (what, commits) = agent.act(&mut self.random);
            checkout.commits.extend(commits);
            what
        };
        *self.figures.acts.entry(what).or_default() += 1;
        checkout.snapshot = Snapshot::of(&home, &checkout.path);
        checkout
            .commits
            .extend(checkout.snapshot.reflog.iter().cloned());
    }

    /// Somebody else pushes to the branch.
    fn synchronize(&mut self, index: usize) {
        let item = &mut self.items[index];
        let Some(branch) = item.branch.clone() else {
            return;
        };
        let before = item.head.clone();
        item.head = self.origins[item.origin].push_more(item.number, &branch);
        let payload = item.synchronize(&before).expect("it is a pull request");
        self.deliver(index, "push", payload);
    }

    /// The agent pushes what it has.
    fn push(&mut self, index: usize) {
        let home = self.world.root().join("home");
        let item = &mut self.items[index];
        let (Some(branch), Some(checkout)) = (item.branch.clone(), &mut item.checkout) else {
            return;
        };
        let mark = String::new();
        let agent = Agent {
            home: &home,
            dir: &checkout.path,
            mark,
        };
        let Some(head) = agent.push(&branch) else {
            return;
        };
        checkout.snapshot = Snapshot::of(&home, &checkout.path);
        let before = std::mem::replace(&mut item.head, head.clone());
        self.origins[item.origin].set_pull(item.number, &head);
        let payload = item.synchronize(&before).expect("it is a pull request");
        self.deliver(index, "own-push", payload);
    }

    /// Runs a command until a daemon that lived through it has answered.
    fn ask(&mut self, arguments: &[&str]) -> Output {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend();
            let output = self.world.run(arguments);
            // 3: there was no daemon, or there is none any more.
            if output.status.code() != Some(3) {
                return output;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {output:?}");
            pause();
        }
    }

    /// Waits until everything before it in the item's lane is over.
    fn wait_lane(&mut self, index: usize) {
        let reference = self.items[index].reference();
        self.ask(&["explain", &reference]);
        self.log.read();
    }

    fn exit(&mut self, index: usize) {
        let reference = self.items[index].reference();
        let refused = self.ask(&["exit", &reference, "--remove", "--stop", "--json"]);
        if !refused.status.success() && self.random.percent(50) {
            let answer: Value = serde_json::from_slice(&refused.stdout).unwrap_or_default();
            let token = find_token(&answer);
            if let Some(token) = token {
                self.ask(&[
                    "exit",
                    &reference,
                    "--remove",
                    "--stop",
                    "--discard-changes",
                    &token,
                ]);
            }
        }
        self.figures.exits += 1;
        self.wait_lane(index);
        self.settle(index);
    }

    fn restore(&mut self, index: usize) {
        let archives = self.items[index].archives.clone();
        let Some(archived) = self.random.one_of(&archives).cloned() else {
            return;
        };
        let restored = self.ask(&["archive", "restore", &archived.id]);
        let said = String::from_utf8_lossy(&restored.stderr).into_owned();
        self.wait_lane(index);
        // The answer to an earlier try may have been lost with the daemon.
        if !restored.status.success() && !said.contains("has a checkout") {
            self.faults
                .push(format!("archive {} is not restored: {said}", archived.id));
            return;
        }
        let shown = self.ask(&["show", &self.items[index].reference(), "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let Some(path) = find_checkout(&shown) else {
            self.faults.push(format!(
                "{} was restored and is nowhere: {shown}",
                archived.id
            ));
            return;
        };
        let home = self.world.root().join("home");
        let snapshot = Snapshot::of(&home, &path);
        let mut expected = archived.snapshot.clone();
        if is_elsewhere(&home, &path, &expected.head) {
            // It stays where it has gone since; the commit is what is restored.
            expected.head.0.clear();
        }
        self.compare(&archived.id, &expected, &snapshot);
        self.items[index].checkout = Some(Checkout {
            path,
            snapshot,
            commits: archived.commits.clone(),
            away: None,
        });
        self.skip_events(index);
        self.figures.restores += 1;
    }

    /// Somebody moves the directory away while no daemon looks.
    fn move_away(&mut self, index: usize) {
        // Nobody moves what a session is just being started in.
        let events = self.log.of_item.get(&self.items[index].reference());
        let runs = |names: [&str; 2]| {
            events.map_or(0, |events| {
                let of = events
                    .iter()
                    .filter(|told| names.iter().any(|name| told["event"] == *name));
                of.count()
            })
        };
        if runs(["session.started", "session.resumed"]) != runs(["session.exited", "session.lost"])
        {
            return;
        }
        let aside = self.world.root().join(format!("aside-{index}"));
        let Some(checkout) = &mut self.items[index].checkout else {
            return;
        };
        fs::rename(&checkout.path, &aside).expect("moved away");
        checkout.away = Some(aside);
        self.figures.moved_away += 1;
    }

    fn bring_back(&mut self, index: usize) {
        if self.random.percent(90) {
            return;
        }
        let Some(checkout) = &mut self.items[index].checkout else {
            return;
        };
        if let Some(aside) = checkout.away.take() {
            if let Some(parent) = checkout.path.parent() {
                fs::create_dir_all(parent).expect("a directory");
            }
            fs::rename(aside, &checkout.path).expect("moved back");
        }
        self.wait_lane(index);
        self.skip_events(index);
    }

    fn skip_events(&mut self, index: usize) {
        self.log.read();
        let item = &mut self.items[index];
        item.read = self.log.of_item.get(&item.reference()).map_or(0, Vec::len);
    }

    fn settle_all(&mut self) {
        self.log.read();
        for index in 0..self.items.len() {
            let item = &mut self.items[index];
            if item.outstanding.is_empty() {
                continue;
            }
            let ends = &self.log.ends;
            item.outstanding.retain(|id| !ends.contains_key(id));
            if item.outstanding.is_empty() {
                self.settle(index);
            }
        }
    }

    /// Takes what was told of an item since, and compares its checkout.
    fn settle(&mut self, index: usize) {
        let home = self.world.root().join("home");
        let reference = self.items[index].reference();
        let events = self
            .log
            .of_item
            .get(&reference)
            .cloned()
            .unwrap_or_default();
        let from = self.items[index].read.min(events.len());
        self.items[index].read = events.len();
        let mut moved = false;
        for event in &events[from..] {
            let path = || PathBuf::from(event["checkout"].as_str().unwrap_or_default());
            match event["event"].as_str().unwrap_or_default() {
                "workspace.prepared" => {
                    let new = self.items[index].checkout.is_none();
                    if new {
                        self.items[index].checkout = Some(Checkout {
                            path: path(),
                            snapshot: Snapshot::default(),
                            commits: BTreeSet::new(),
                            away: None,
                        });
                        moved = true;
                    }
                }
                "workspace.updated" if event["moved"] == true => moved = true,
                "workspace.cleaned" => {
                    self.removed(index, event);
                    moved = false;
                }
                "workspace.missing" => self.faults.push(format!("{reference}: {event}")),
                _ => {}
            }
        }
        let Some(checkout) = &mut self.items[index].checkout else {
            return;
        };
        if checkout.away.is_some() {
            return;
        }
        if !checkout.path.is_dir() {
            let path = checkout.path.clone();
            if self.is_told_gone(index, &path) {
                return self.settle(index);
            }
        }
        let Some(checkout) = &mut self.items[index].checkout else {
            return;
        };
        let now = Snapshot::of(&home, &checkout.path);
        if moved {
            checkout.commits.extend(now.reflog.iter().cloned());
            checkout.snapshot = now;
            return;
        }
        let before = checkout.snapshot.clone();
        self.compare(&format!("{reference} in place"), &before, &now);
    }

    /// A directory that is not there went a moment ago and the log is about to say
    /// so, or it is about to be put back. Returns whether it went.
    fn is_told_gone(&mut self, index: usize, path: &Path) -> bool {
        let reference = self.items[index].reference();
        let deadline = Instant::now() + PATIENCE;
        while !path.is_dir() {
            self.log.read();
            let told = self.log.of_item.get(&reference).into_iter().flatten();
            if told
                .skip(self.items[index].read)
                .any(|event| event["event"] == "workspace.cleaned")
            {
                return true;
            }
            assert!(
                Instant::now() < deadline,
                "{reference}: `{}` is gone, and nothing was told of it",
                path.display()
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
        false
    }

    /// A checkout is gone: it was archived, or everything of it is on the remote.
    fn removed(&mut self, index: usize, event: &Value) {
        let Some(checkout) = self.items[index].checkout.take() else {
            // Opened and closed before anybody looked.
            return;
        };
        if let Some(id) = event["archive"].as_str() {
            self.items[index].archives.push(Archived {
                id: id.to_owned(),
                snapshot: checkout.snapshot,
                commits: checkout.commits,
            });
            return;
        }
        let mut ids = checkout.snapshot.blobs();
        ids.extend(checkout.commits);
        ids.retain(|id| id.chars().any(|digit| digit != '0'));
        let lost = missing_in(&self.origins[self.items[index].origin].bare, &ids);
        self.count(&checkout.snapshot);
        if !lost.is_empty() {
            let what: Vec<String> = checkout
                .snapshot
                .files
                .iter()
                .filter(|(_, found)| lost.contains(&found.blob))
                .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
                .collect();
            self.faults.push(format!(
                "lost, without an archive: {lost:?} {what:?}: {event}"
            ));
        }
    }

    fn count(&mut self, snapshot: &Snapshot) {
        self.figures.files += u64::try_from(snapshot.files.len()).expect("few");
        self.figures.bytes += snapshot.bytes();
    }

    fn compare(&mut self, what: &str, before: &Snapshot, after: &Snapshot) {
        self.count(before);
        let differs = before.differences(after);
        if !differs.is_empty() {
            self.faults.push(format!("{what}: {}", differs.join("; ")));
        }
    }

    /// Ends everything, and looks at all of it.
    fn end(&mut self) {
        let deadline = Instant::now() + PATIENCE * 3;
        for index in 0..self.items.len() {
            let away = self.items[index]
                .checkout
                .as_ref()
                .is_some_and(|it| it.away.is_some());
            while away
                && self.items[index]
                    .checkout
                    .as_ref()
                    .is_some_and(|it| it.away.is_some())
            {
                self.bring_back(index);
            }
        }
        self.wait_outstanding(deadline);
        for index in 0..self.items.len() {
            if self.items[index].open {
                self.close(index);
            } else if self.items[index].checkout.is_some() {
                // Restored, and nothing came after it.
                self.open(index);
                self.close_if_open(index);
            }
        }
        self.wait_outstanding(deadline);
        // The last one lives.
        if !self.world.has_died() {
            self.world.kill();
        }
        self.armed = false;
        self.next_death = Instant::now() + PATIENCE * 10;
        self.world.start();
        self.wait_outstanding(deadline);
        // What was kept because a git was killed is judged again.
        for index in 0..self.items.len() {
            if self.items[index].checkout.is_some() {
                let reference = self.items[index].reference();
                self.ask(&["item", "cleanup", &reference]);
                self.wait_lane(index);
                self.settle(index);
            }
        }
        self.check_archives();
        self.check_deliveries();
        self.check_remains(deadline);
        self.world.stop();
        self.log.read();
        self.faults.extend(
            self.log
                .gaps
                .iter()
                .map(|gap| format!("a gap in the log: {gap}")),
        );
    }

    fn close_if_open(&mut self, index: usize) {
        if self.items[index].open {
            self.close(index);
        }
    }

    fn wait_outstanding(&mut self, deadline: Instant) {
        while self.items.iter().any(|item| !item.outstanding.is_empty()) {
            self.tend();
            self.settle_all();
            if Instant::now() > deadline {
                let left: Vec<&String> = self
                    .items
                    .iter()
                    .flat_map(|item| &item.outstanding)
                    .collect();
                self.faults.push(format!("never over: {left:?}"));
                return;
            }
            pause();
        }
    }

    /// Restores every archive, and compares to the byte.
    fn check_archives(&mut self) {
        let home = self.world.root().join("home");
        let to = self.world.root().join("restored");
        for index in 0..self.items.len() {
            let origin = self.origins[self.items[index].origin].bare.clone();
            for archived in self.items[index].archives.clone() {
                let shown = to.display().to_string();
                let restored = self.ask(&["archive", "restore", &archived.id, "--to", &shown]);
                if !restored.status.success() {
                    let said = String::from_utf8_lossy(&restored.stderr).into_owned();
                    self.faults.push(format!("archive {}: {said}", archived.id));
                    let _nothing = fs::remove_dir_all(&to);
                    continue;
                }
                let snapshot = Snapshot::of(&home, &to);
                self.compare(&archived.id, &archived.snapshot, &snapshot);
                let mut commits = archived.commits.clone();
                commits.retain(|id| id.chars().any(|digit| digit != '0'));
                let absent: BTreeSet<String> = missing_in(&to, &commits).into_iter().collect();
                let lost = missing_in(&origin, &absent);
                if !lost.is_empty() {
                    self.faults
                        .push(format!("archive {} lacks commits {lost:?}", archived.id));
                }
                fs::remove_dir_all(&to).expect("removed");
            }
        }
    }

    /// Everything that was accepted arrived once, ended once, and was told once.
    fn check_deliveries(&mut self) {
        self.log.read();
        for (id, _) in &self.accepted {
            let arrivals = self.log.arrivals.get(id).copied().unwrap_or(0);
            let ends = self.log.ends.get(id).map_or(0, Vec::len);
            if (arrivals, ends) != (1, 1) {
                self.faults.push(format!(
                    "{id} arrived {arrivals} times and ended {ends} times"
                ));
            }
        }
        for (index, id, text) in &self.comments {
            let item = &self.items[*index];
            let lines = told(&self.world, &item.repo.full_name(), item.number);
            let times = lines
                .iter()
                .filter(|line| line.contains(&format!("{text} ")))
                .count();
            let dropped = self.log.ends.get(id).is_some_and(|ends| {
                ends.iter().any(|end| {
                    // A close that came after it was told, and before that was
                    // stored, overtakes it.
                    end["event"] == "delivery.dropped" && end["reason"] != "superseded"
                })
            });
            // A close may come before the session wrote down what it was told.
            if times > 1 || (dropped && times > 0) {
                self.faults.push(format!("{id} was told {times} times"));
            }
        }
        for name in ["delivery.parked", "session.lost"] {
            let count = self.log.count(name);
            if count > 0 {
                self.faults.push(format!("{count} times {name}"));
            }
        }
        let violations = violations(&self.world);
        if !violations.is_empty() {
            self.faults.push(violations);
        }
    }

    /// Nothing is left of what was removed.
    fn check_remains(&mut self, deadline: Instant) {
        let root = self.world.checkouts();
        loop {
            let mut left = Vec::new();
            for area in [".staging", ".trash"] {
                left.extend(
                    names(&root.join(area))
                        .iter()
                        .map(|name| format!("{area}/{name}")),
                );
            }
            left.extend(
                crate::inn::remains(&self.world)
                    .into_iter()
                    .filter(|entry| !entry.starts_with("refs/heads/")),
            );
            let kept: Vec<String> = self
                .items
                .iter()
                .filter_map(|item| item.checkout.as_ref())
                .map(|checkout| checkout.path.display().to_string())
                .collect();
            if left.is_empty() && kept.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                self.faults
                    .push(format!("left over: {left:?}; kept: {kept:?}"));
                return;
            }
            pause();
        }
    }

    #[allow(clippy::print_stderr, reason = "the figures are what it is run for")]
    fn report(&self, begun: Instant) {
        let figures = &self.figures;
        eprintln!(
            "campaign, seed {}, {} items, {} repositories, {} s",
            self.scale.seed,
            self.scale.items,
            self.scale.repos,
            begun.elapsed().as_secs()
        );
        eprintln!(
            "  daemons: {} killed at random, {} died at named points, {} stopped; {} gits killed",
            figures.kills, figures.deaths_at_points, figures.stops, figures.gits_killed
        );
        eprintln!(
            "  deliveries: {} and {} sent again",
            figures.deliveries, figures.duplicates
        );
        eprintln!(
            "  checkouts: {} made, {} moved on, {} removed, {} times kept, {} exits, {} moved away and back",
            self.log.count("workspace.prepared"),
            self.log.count("workspace.updated"),
            self.log.count("workspace.cleaned"),
            self.log.count("workspace.kept"),
            figures.exits,
            figures.moved_away
        );
        eprintln!(
            "  archives: {} made, {} restored as checkouts, all restored alone",
            self.log.count("archive.created"),
            figures.restores
        );
        eprintln!("  writers: {:?}", figures.acts);
        eprintln!(
            "  compared: {} files, {} bytes; faults: {}",
            figures.files,
            figures.bytes,
            if self.faults.is_empty() {
                "none".into()
            } else {
                self.faults.len().to_string()
            }
        );
    }
}

fn pause() {
    std::thread::park_timeout(Duration::from_millis(5));
}

/// Whether the branch that HEAD named has gone on to another commit.
fn is_elsewhere(home: &std::path::Path, dir: &std::path::Path, head: &(String, String)) -> bool {
    let (branch, commit) = head;
    let tip = git_output(home, dir, &["rev-parse", "-q", "--verify", branch]);
    let tip = String::from_utf8_lossy(&tip.stdout).trim().to_owned();
    !branch.is_empty() && !tip.is_empty() && tip != *commit
}

/// Kills what the daemon has for children that are git.
fn kill_gits(daemon: u32) -> u64 {
    let mut killed = 0;
    for name in names(std::path::Path::new("/proc")) {
        let Ok(pid) = name.parse::<u32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((before, after)) = stat.rsplit_once(") ") else {
            continue;
        };
        let parent = after
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse::<u32>().ok());
        if parent == Some(daemon) && before.ends_with("(git") {
            signal(pid, "KILL");
            killed += 1;
        }
    }
    killed
}

/// Finds a consent's token in a refusal, wherever it stands.
fn find_token(answer: &Value) -> Option<String> {
    find(answer, "token")
}

/// Finds where a checkout is, in what `show` says.
fn find_checkout(shown: &Value) -> Option<PathBuf> {
    ["path", "checkout"]
        .iter()
        .filter_map(|key| find(shown, key))
        .map(PathBuf::from)
        .find(|path| path.is_dir())
}

fn find(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| fields.values().find_map(|inner| find(inner, key))),
        Value::Array(values) => values.iter().find_map(|inner| find(inner, key)),
        _ => None,
    }
}
