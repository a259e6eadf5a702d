//! Lanes: who is next.
//!
//! Each work item has a lane, first in first out. Lanes run in parallel up to a
//! limit, which they share fairly: repositories take turns, and within one
//! repository its lanes do, so that a flood on one repository does not delay
//! the first event of another.
//!
//! # Invariants
//!
//! 1. At most one job of a lane runs.
//! 2. Deliveries of a lane start in the order in which they came.
//! 3. A lane whose first delivery waits (for its next attempt, or for a free
//!    place) starts no later delivery; requests do not wait behind it.
//! 4. Nothing is forgotten: what was pushed is started, or handed back.
//!
//! Times are milliseconds on any clock that does not go backwards.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// What tells lanes apart.
pub type LaneKey = String;

/// A delivery that waits in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Order of arrival, in the store.
    pub seq: i64,
    /// Id of the delivery.
    pub id: String,
    /// Whether it closes the item.
    pub closes: bool,
    /// Whether it tells of a new head.
    pub synchronizes: bool,
    /// Not to be started before.
    pub not_before: i64,
    /// Whether it was said that it waits for a free place.
    pub told_to_wait: bool,
}

/// Something to do for a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// A delivery, and earlier ones that it makes pointless.
    Delivery {
        /// The delivery to work on.
        waiting: Waiting,
        /// Waiting `synchronize` that this one replaces.
        superseded: Vec<Waiting>,
        /// Whether a close of the item waits behind it.
        close_waits: bool,
    },
    /// A request, by the number it was pushed with.
    Request(u64),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is over.
    Done,
    /// The delivery is to be taken again at this time.
    Again(Waiting),
    /// The delivery waits for a session's place.
    ForPlace(Waiting),
    /// The request waits for a session's place.
    RequestForPlace(u64),
}

/// What a close that has just been pushed puts an end to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// A job of the lane runs and is to be cancelled if it is a preparation.
    pub running: bool,
    /// Deliveries that waited for an attempt or a place; they are not started any more.
    pub superseded: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Lane {
    repository: String,
    deliveries: VecDeque<Waiting>,
    requests: VecDeque<u64>,
    running: bool,
    /// The first delivery waits for a place.
    delivery_for_place: bool,
    /// Requests that wait for a place.
    requests_for_place: VecDeque<u64>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
            && self.requests.is_empty()
            && self.requests_for_place.is_empty()
            && !self.running
    }

    fn is_ready(&self, now: i64) -> bool {
        !self.running
            && (!self.requests.is_empty()
                || (!self.delivery_for_place
                    && self
                        .deliveries
                        .front()
                        .is_some_and(|first| first.not_before <= now)))
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub struct Lanes {
    by_key: HashMap<LaneKey, Lane>,
    /// The lanes of each repository, in the order in which they take turns.
    turns: BTreeMap<String, VecDeque<LaneKey>>,
    /// The repositories in the order in which they take turns.
    repositories: VecDeque<String>,
    running: usize,
}

impl Lanes {
    /// Returns how many lanes there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns whether there is no lane.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns how many jobs run.
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Returns whether a job of this lane runs.
    pub fn is_running(&self, key: &str) -> bool {
        self.by_key.get(key).is_some_and(|lane| lane.running)
    }

    fn lane(&mut self, key: &str, repository: &str) -> &mut Lane {
        if !self.by_key.contains_key(key) {
            let turns = self.turns.entry(repository.to_owned()).or_default();
            if turns.is_empty() {
                self.repositories.push_back(repository.to_owned());
            }
            turns.push_back(key.to_owned());
        }
        self.by_key.entry(key.to_owned()).or_insert_with(|| Lane {
            repository: repository.to_owned(),
            ..Lane::default()
        })
    }

    /// Adds a delivery at the end of its lane.
    pub fn push_delivery(&mut self, key: &str, repository: &str, waiting: Waiting) -> Interrupted {
        let lane = self.lane(key, repository);
        let mut interrupted = Interrupted::default();
        if waiting.closes {
            interrupted.running = lane.running;
            let waits = lane.delivery_for_place
                || lane
                    .deliveries
                    .front()
                    .is_some_and(|first| first.not_before > 0);
            if waits && !lane.running && lane.deliveries.front().is_some_and(|first| !first.closes)
            {
                interrupted.superseded.extend(lane.deliveries.pop_front());
                lane.delivery_for_place = false;
            }
        }
        lane.deliveries.push_back(waiting);
        interrupted
    }

    /// Adds a request; it is started before waiting deliveries of its lane.
    pub fn push_request(&mut self, key: &str, repository: &str, request: u64) {
        self.lane(key, repository).requests.push_back(request);
    }

    /// Returns the next job to start, if fewer than `limit` run.
    pub fn next(&mut self, now: i64, limit: usize) -> Option<(LaneKey, Job)> {
        if self.running >= limit {
            return None;
        }
        for _ in 0..self.repositories.len() {
            let repository = self.repositories.pop_front()?;
            let found = self.turns.get_mut(&repository).and_then(|turns| {
                let position = turns
                    .iter()
                    .position(|key| self.by_key.get(key).is_some_and(|lane| lane.is_ready(now)))?;
                // The lane that was served goes behind the others of its repository.
                let key = turns.remove(position)?;
                turns.push_back(key.clone());
                Some(key)
            });
            self.repositories.push_back(repository);
            if let Some(key) = found {
                let job = self
                    .by_key
                    .get_mut(&key)
                    .and_then(|lane| start(lane, now))?;
                self.running += 1;
                return Some((key, job));
            }
        }
        None
    }

    /// Says how the running job of a lane ended.
    pub fn ended(&mut self, key: &str, ended: Ended) {
        let Some(lane) = self.by_key.get_mut(key) else {
            return;
        };
        debug_assert!(lane.running, "only a running job can end");
        lane.running = false;
        self.running -= 1;
        match ended {
            Ended::Done => {}
            Ended::Again(waiting) => lane.deliveries.push_front(waiting),
            Ended::ForPlace(waiting) => {
                lane.deliveries.push_front(waiting);
                lane.delivery_for_place = true;
            }
            Ended::RequestForPlace(request) => lane.requests_for_place.push_back(request),
        }
        self.forget_if_empty(key);
    }

    /// Takes the first delivery of a lane away if a close waits behind it and it
    /// waits itself: the close need not wait for its next attempt.
    pub fn give_way_to_close(&mut self, key: &str) -> Option<Waiting> {
        let lane = self.by_key.get_mut(key)?;
        let first = lane.deliveries.front()?;
        let waits = lane.delivery_for_place || first.not_before > 0;
        if lane.running || first.closes || !waits {
            return None;
        }
        if !lane.deliveries.iter().skip(1).any(|later| later.closes) {
            return None;
        }
        lane.delivery_for_place = false;
        lane.deliveries.pop_front()
    }

    /// A session's place is free: what waits for one is tried again.
    pub fn place_free(&mut self) {
        for lane in self.by_key.values_mut() {
            lane.delivery_for_place = false;
            while let Some(request) = lane.requests_for_place.pop_front() {
                lane.requests.push_back(request);
            }
        }
    }

    /// Returns when the next waiting delivery is due, if one waits for a time.
    pub fn next_due(&self, now: i64) -> Option<i64> {
        self.by_key
            .values()
            .filter(|lane| !lane.running && !lane.delivery_for_place)
            .filter_map(|lane| lane.deliveries.front())
            .map(|first| first.not_before)
            .filter(|due| *due > now)
            .min()
    }

    fn forget_if_empty(&mut self, key: &str) {
        if !self.by_key.get(key).is_some_and(Lane::is_empty) {
            return;
        }
        let Some(lane) = self.by_key.remove(key) else {
            return;
        };
        if let Some(turns) = self.turns.get_mut(&lane.repository) {
            turns.retain(|other| other != key);
            if turns.is_empty() {
                self.turns.remove(&lane.repository);
                self.repositories.retain(|other| *other != lane.repository);
            }
        }
    }
}

/// Starts the next job of a lane that is ready.
fn start(lane: &mut Lane, now: i64) -> Option<Job> {
    if let Some(request) = lane.requests.pop_front() {
        lane.running = true;
        return Some(Job::Request(request));
    }
    let mut waiting = lane.deliveries.pop_front()?;
    debug_assert!(waiting.not_before <= now, "a lane that waits is not ready");
    let mut superseded = Vec::new();
    // Of several waiting `synchronize` only the newest tells anything. It keeps
    // its own place: what came between is worked on before it.
    while waiting.synchronizes && lane.deliveries.iter().any(|later| later.synchronizes) {
        superseded.push(waiting);
        waiting = lane.deliveries.pop_front()?;
    }
    let close_waits = lane.deliveries.iter().any(|later| later.closes);
    lane.running = true;
    Some(Job::Delivery {
        waiting,
        superseded,
        close_waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(seq: i64) -> Waiting {
        Waiting {
            seq,
            id: format!("d-{seq}"),
            closes: false,
            synchronizes: false,
            not_before: 0,
            told_to_wait: false,
        }
    }

    fn seq_of(job: &Job) -> i64 {
        match job {
            Job::Delivery { waiting, .. } => waiting.seq,
            Job::Request(number) => -i64::try_from(*number).expect("small"),
        }
    }

    /// Starts and ends jobs one after the other; returns what was started.
    fn run_all(lanes: &mut Lanes) -> Vec<i64> {
        let mut order = Vec::new();
        while let Some((key, job)) = lanes.next(0, 1) {
            order.push(seq_of(&job));
            lanes.ended(&key, Ended::Done);
        }
        order
    }

    #[test]
    fn a_lane_is_first_in_first_out_and_runs_one_job_at_a_time() {
        let mut lanes = Lanes::default();
        for seq in 1..=3 {
            lanes.push_delivery("a", "r", delivery(seq));
        }
        let (key, job) = lanes.next(0, 4).expect("one is ready");
        assert_eq!(seq_of(&job), 1);
        assert_eq!(lanes.next(0, 4), None, "the lane is busy");
        lanes.ended(&key, Ended::Done);
        assert_eq!(run_all(&mut lanes), [2, 3]);
        assert!(lanes.is_empty());
    }

    #[test]
    fn a_flood_on_one_repository_does_not_delay_the_first_event_of_another() {
        let mut lanes = Lanes::default();
        for seq in 1..=100 {
            lanes.push_delivery(&format!("flood-{}", seq % 50), "flooded", delivery(seq));
        }
        lanes.push_delivery("quiet", "quiet", delivery(1000));
        let order = run_all(&mut lanes);
        let place = order
            .iter()
            .position(|seq| *seq == 1000)
            .expect("it was started");
        assert!(place <= 1, "started as number {place}");
        assert_eq!(order.len(), 101);
    }

    #[test]
    fn no_more_run_than_the_limit_allows() {
        let mut lanes = Lanes::default();
        for seq in 1..=5 {
            lanes.push_delivery(&format!("{seq}"), "r", delivery(seq));
        }
        let mut started = Vec::new();
        while let Some((key, _)) = lanes.next(0, 3) {
            started.push(key);
        }
        assert_eq!(started.len(), 3);
        lanes.ended(&started[0], Ended::Done);
        assert!(lanes.next(0, 3).is_some());
    }

    #[test]
    fn waiting_synchronizes_become_the_newest_and_others_keep_their_place() {
        let mut lanes = Lanes::default();
        let sync = |seq| Waiting {
            synchronizes: true,
            ..delivery(seq)
        };
        lanes.push_delivery("a", "r", sync(1));
        lanes.push_delivery("a", "r", sync(2));
        lanes.push_delivery("a", "r", delivery(3));
        lanes.push_delivery("a", "r", sync(4));
        let (key, job) = lanes.next(0, 1).expect("ready");
        let Job::Delivery {
            waiting,
            superseded,
            ..
        } = job
        else {
            panic!("a delivery")
        };
        assert_eq!(waiting.seq, 3);
        assert_eq!(superseded.iter().map(|w| w.seq).collect::<Vec<_>>(), [1, 2]);
        lanes.ended(&key, Ended::Done);
        assert_eq!(run_all(&mut lanes), [4]);
    }

    #[test]
    fn a_delivery_that_waits_for_its_next_attempt_blocks_later_ones_but_no_request() {
        let mut lanes = Lanes::default();
        lanes.push_delivery("a", "r", delivery(1));
        lanes.push_delivery("a", "r", delivery(2));
        let (key, job) = lanes.next(0, 1).expect("ready");
        let Job::Delivery { mut waiting, .. } = job else {
            panic!("a delivery")
        };
        waiting.not_before = 500;
        lanes.ended(&key, Ended::Again(waiting));
        assert_eq!(lanes.next(0, 1), None);
        assert_eq!(lanes.next_due(0), Some(500));
        lanes.push_request("a", "r", 9);
        let (key, job) = lanes.next(0, 1).expect("the request");
        assert_eq!(job, Job::Request(9));
        lanes.ended(&key, Ended::Done);
        let (key, job) = lanes.next(500, 1).expect("due");
        assert_eq!(seq_of(&job), 1);
        lanes.ended(&key, Ended::Done);
    }

    #[test]
    fn a_close_ends_the_wait_of_what_stands_before_it() {
        let mut lanes = Lanes::default();
        lanes.push_delivery(
            "a",
            "r",
            Waiting {
                not_before: 500,
                ..delivery(1)
            },
        );
        let interrupted = lanes.push_delivery(
            "a",
            "r",
            Waiting {
                closes: true,
                ..delivery(2)
            },
        );
        assert_eq!(
            interrupted
                .superseded
                .iter()
                .map(|w| w.seq)
                .collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(run_all(&mut lanes), [2]);
    }

    #[test]
    fn a_close_says_that_a_running_job_is_to_be_interrupted() {
        let mut lanes = Lanes::default();
        lanes.push_delivery("a", "r", delivery(1));
        let (key, _) = lanes.next(0, 1).expect("ready");
        let close = Waiting {
            closes: true,
            ..delivery(2)
        };
        assert!(lanes.push_delivery("a", "r", close).running);
        // Its attempt failed meanwhile: it gives way.
        lanes.ended(
            &key,
            Ended::Again(Waiting {
                not_before: 500,
                ..delivery(1)
            }),
        );
        assert_eq!(lanes.give_way_to_close("a").map(|w| w.seq), Some(1));
        assert_eq!(run_all(&mut lanes), [2]);
    }

    #[test]
    fn what_waits_for_a_place_is_tried_again_when_one_is_free() {
        let mut lanes = Lanes::default();
        lanes.push_delivery("a", "r", delivery(1));
        let (key, job) = lanes.next(0, 1).expect("ready");
        let Job::Delivery { waiting, .. } = job else {
            panic!("a delivery")
        };
        lanes.ended(&key, Ended::ForPlace(waiting));
        lanes.push_request("b", "r", 7);
        let (key, _) = lanes.next(0, 1).expect("the request");
        lanes.ended(&key, Ended::RequestForPlace(7));
        assert_eq!(lanes.next(0, 1), None);
        assert_eq!(lanes.next_due(0), None);
        lanes.place_free();
        let mut order = run_all(&mut lanes);
        order.sort_unstable();
        assert_eq!(order, [-7, 1]);
        assert!(lanes.is_empty());
    }
}
