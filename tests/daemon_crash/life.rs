//! The life of one pull request with a daemon that dies at ordered points, and
//! what must be true of it afterwards.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::inn::{
    assert_clones_are_whole, of_delivery, processes, repo, told, violations, wait_nothing_left,
    world_of_scribes,
};
use crate::support::payloads::{Payload, PullRequest};
use crate::support::world::{Origin, PATIENCE, World};

/// What ends a delivery.
const ENDS: &[&str] = &["delivery.done", "delivery.dropped", "delivery.parked"];

/// The work that a session leaves, by name and content: none of it is anywhere else.
const WORK: &[(&str, &str)] = &[
    ("draft.txt", "not committed\n"),
    (".env", "a secret that git ignores\n"),
    ("README", "changed, and staged\n"),
];

/// A world, its one pull request, and the points at which daemons are to die.
pub struct Life {
    world: World,
    origin: Origin,
    pull: PullRequest,
    /// For the daemons to come, in order; later ones live.
    orders: VecDeque<String>,
    /// How many died.
    pub deaths: usize,
    accepted: Vec<String>,
    checkout: Option<PathBuf>,
}

impl Life {
    /// Returns a world in which the first daemons are to die at these points.
    pub fn new(strategy: &str, orders: &[&str]) -> Self {
        let world = world_of_scribes(
            |config| {
                config.workspace = format!("strategy: {strategy}\nuntrustedStrategy: {strategy}");
            },
            "",
        );
        let origin = world.origin("acme", "widgets");
        let head = origin.pull_request(1, "topic");
        Self {
            pull: PullRequest::new(&repo("acme", "widgets", 7), 1, &head).branch("topic"),
            world,
            origin,
            orders: orders.iter().map(|order| (*order).to_owned()).collect(),
            deaths: 0,
            accepted: Vec::new(),
            checkout: None,
        }
    }

    /// Goes through the whole life and compares.
    pub fn live(&mut self) {
        self.start();
        let opened = self.deliver("opened", &self.pull.opened());
        self.wait_over(&opened);
        self.wait_quiet(1);
        let prepared = self.wait_event(&opened, "workspace.prepared");
        let checkout = PathBuf::from(prepared["checkout"].as_str().expect("a path"));
        self.checkout = Some(checkout.clone());

        let first = self.pull.head_sha.clone();
        let second = self.origin.push_more(1, "topic");
        self.pull = self.pull.clone().at(&second);
        let pushed = self.deliver("synchronize", &self.pull.synchronize(&first));
        self.wait_over(&pushed);
        self.wait_quiet(2);
        assert_eq!(self.head(), second, "the checkout follows its pull request");
        let updated = self.wait_event(&pushed, "workspace.updated");
        assert_eq!(updated["moved"], true, "{updated}");
        assert_eq!(updated["from"], first, "{updated}");
        assert_eq!(updated["to"], second, "{updated}");
        let comment = self.pull.commented("alice", "MEMBER", "a-comment");
        let commented = self.deliver("comment", &comment);
        self.wait_over(&commented);
        self.wait_quiet(3);

        for (name, text) in WORK {
            fs::write(checkout.join(name), text).expect("work");
        }
        self.git(&["add", "README"]);
        let closed = self.deliver("closed-dirty", &self.pull.closed_unmerged());
        self.wait_over(&closed);
        self.bring_back();
        self.require_work();

        let reopened = self.deliver("reopened", &self.pull.reopened());
        self.wait_over(&reopened);
        self.wait_quiet(4);
        assert_eq!(self.head(), second);
        self.require_work();
        self.git(&["reset", "-q", "--hard"]);
        for (name, _) in WORK.iter().filter(|(name, _)| *name != "README") {
            fs::remove_file(checkout.join(name)).expect("it is there");
        }
        let closed = self.deliver("closed-clean", &self.pull.closed_unmerged());
        self.wait_over(&closed);
        self.stop();
        self.start();
        wait_nothing_left(&self.world);
        self.stop();
        self.compare();
    }

    /// Starts daemons until one lives.
    fn start(&mut self) {
        loop {
            let order = self.orders.pop_front();
            let started = self.world.try_start_with(|command| {
                if let Some(order) = &order {
                    command.env("INNKEEPER_CRASH_AT", order);
                }
            });
            match started {
                Ok(()) => return,
                Err(told) => {
                    assert!(order.is_some(), "the daemon did not start: {told}");
                    assert!(told.contains("signal: 9"), "{told}");
                    self.deaths += 1;
                }
            }
        }
    }

    /// Replaces the daemon if it has died.
    fn tend(&mut self) {
        if self.world.has_died() {
            self.deaths += 1;
            self.start();
        }
    }

    /// Stops the daemon; one that dies of it is replaced and asked again.
    fn stop(&mut self) {
        self.world.signal("TERM");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.world.ended() {
                Some(status) if status.success() => return,
                Some(status) => {
                    assert!(
                        self.orders.len() + self.deaths < 8 && status.code().is_none(),
                        "the daemon ended with {status}"
                    );
                    self.deaths += 1;
                    self.start();
                    self.world.signal("TERM");
                }
                None => {}
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            pause();
        }
    }

    /// Delivers until it is accepted, as GitHub and its operators do.
    fn deliver(&mut self, name: &str, payload: &Payload) -> String {
        let id = format!("life-{name}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend();
            match self.world.try_deliver_as(&id, payload) {
                Ok(reply) => {
                    assert_eq!(reply.status, 202, "{id}: {reply:?}");
                    self.accepted.push(id.clone());
                    return id;
                }
                Err(error) => assert!(Instant::now() < deadline, "{id}: {error}"),
            }
            pause();
        }
    }

    fn wait<T>(&mut self, what: &str, found: impl Fn(&[Value]) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend();
            let events = self.world.events();
            if let Some(found) = found(&events) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; the log says:\n{}",
                story(&events)
            );
            pause();
        }
    }

    fn wait_over(&mut self, id: &str) {
        let over = self.wait(&format!("the end of {id}"), |events| {
            of_delivery(events, id, ENDS)
                .first()
                .map(|end| (*end).clone())
        });
        assert_eq!(over["event"], "delivery.done", "{over}");
    }

    fn wait_event(&mut self, id: &str, name: &str) -> Value {
        self.wait(&format!("{name} of {id}"), |events| {
            of_delivery(events, id, &[name])
                .first()
                .map(|told| (*told).clone())
        })
    }

    /// Waits until this many runs are over.
    fn wait_quiet(&mut self, runs: usize) {
        self.wait(&format!("the end of run {runs}"), |events| {
            let over = events.iter().filter(|told| {
                told["event"] == "session.exited" || told["event"] == "session.lost"
            });
            (over.count() >= runs).then_some(())
        });
    }

    fn git(&self, arguments: &[&str]) -> String {
        let checkout = self.checkout.as_ref().expect("it was prepared");
        self.origin.git_in(checkout, arguments)
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Restores what the close archived; a daemon that dies of it is asked again.
    fn bring_back(&mut self) {
        let archive = self.wait("an archive", |events| {
            let cleaned = events
                .iter()
                .find(|told| told["event"] == "workspace.cleaned")?;
            Some(cleaned["archive"].as_str().expect("its id").to_owned())
        });
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend();
            let answer = self.world.run(&["archive", "restore", &archive]);
            let said = String::from_utf8_lossy(&answer.stderr).into_owned();
            // The daemon died after it was done, and nobody was told.
            if answer.status.success() || said.contains("has a checkout") {
                return;
            }
            assert!(Instant::now() < deadline, "{said}");
            pause();
        }
    }

    /// What was left is there to the byte.
    fn require_work(&self) {
        let checkout = self.checkout.as_ref().expect("it was prepared");
        for (name, text) in WORK {
            let found = fs::read_to_string(checkout.join(name)).unwrap_or_default();
            assert_eq!(found, *text, "{name}\n{}", story(&self.world.events()));
        }
        assert_eq!(self.git(&["show", ":README"]), WORK[2].1.trim_end());
        assert_eq!(self.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "topic");
    }

    /// Everything was told once, in order, to one session at a time.
    fn compare(&self) {
        let events = self.world.events();
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["seq"], index + 1, "a gap in the log at {event}");
        }
        for id in &self.accepted {
            for (names, what) in [(ENDS, "end"), (&["webhook.received"][..], "arrival")] {
                let found = of_delivery(&events, id, names);
                assert_eq!(found.len(), 1, "one {what} of {id}: {}", story(&events));
            }
        }
        let count = |name: &str| events.iter().filter(|told| told["event"] == name).count();
        for bad in [
            "workspace.prepare_failed",
            "workspace.missing",
            "session.lost",
            "session.spawn_failed",
            "delivery.parked",
            "lock.removed",
        ] {
            assert_eq!(count(bad), 0, "{bad}\n{}", story(&events));
        }
        for (name, times) in [
            ("workspace.prepared", 1),
            ("workspace.updated", 1),
            ("workspace.cleaned", 2),
            ("workspace.kept", 0),
            ("archive.created", 1),
        ] {
            assert_eq!(count(name), times, "{name}\n{}", story(&events));
        }
        assert_eq!(violations(&self.world), "");
        let told = told(&self.world, "acme/widgets", 1);
        let second = &self.pull.head_sha;
        let texts = [
            "pull_request/opened 1".to_owned(),
            second.clone(),
            "a-comment".to_owned(),
            "pull_request/reopened 1".to_owned(),
        ];
        let lines: Vec<&String> = told.iter().filter(|line| line.ends_with(" end")).collect();
        assert_eq!(lines.len(), texts.len(), "{told:#?}\n{}", story(&events));
        for (line, text) in lines.iter().zip(&texts) {
            assert!(line.contains(text.as_str()), "{text}: {told:#?}");
        }
        assert_clones_are_whole(&self.world);
        assert_eq!(processes(self.world.root()), Vec::<String>::new());
    }
}

fn pause() {
    std::thread::park_timeout(Duration::from_millis(5));
}

fn story(events: &[Value]) -> String {
    events
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
