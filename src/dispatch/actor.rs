//! The loop that decides what runs when. It owns the lanes; everything that
//! takes time runs in a task of its own and reports back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::archives::Archived;
use super::request::{Answer, Request, RequestError};
use super::{Context, Load, triage};
use crate::clock;
use crate::domain::lane::{Ended, Job, LaneKey, Lanes};
use crate::domain::reclaim::Holding;
use crate::domain::reconcile::Step;
use crate::store::StoreError;

/// How many stored deliveries are read at once.
const TRIAGE_BATCH: u32 = 64;

/// Everything that can wake the loop.
pub(super) enum Message {
    /// Deliveries were stored, or one was replayed.
    Wake,
    /// Look at a delivery that was replayed: it is older than those read last.
    Replayed(i64),
    /// Somebody asks for something.
    Request {
        lane: LaneKey,
        repository: String,
        work: RequestWork,
    },
    /// A job is over.
    Ended { lane: LaneKey, ended: Ended },
    /// A request has to wait for a session's place.
    Waits {
        lane: LaneKey,
        number: u64,
        work: RequestWork,
    },
    /// A session's place is free.
    PlaceFree,
    /// Begin nothing new.
    Stop,
}

/// What a request does when its turn comes.
pub(super) enum RequestWork {
    /// For somebody who waits for the answer.
    Asked {
        item: Option<i64>,
        request: Box<Request>,
        answer: oneshot::Sender<Result<Answer, RequestError>>,
    },
    /// Look what became of a session's run and do what follows.
    Settle {
        session: String,
        /// Whether it was said that it waits for a free place.
        told_to_wait: bool,
    },
    /// Delete an archive that has been kept for long enough.
    Expire { item: i64, archived: Box<Archived> },
    /// Do what a comparison of store and disk asks for, if it is still so.
    Reconcile {
        item: i64,
        step: Step,
        /// Told, by being dropped, when it is over.
        done: oneshot::Sender<()>,
    },
    /// Give back what can be made again in a kept checkout.
    Tidy {
        item: i64,
        answer: oneshot::Sender<Vec<Holding>>,
    },
}

/// A job that runs.
struct RunningJob {
    /// Stops its preparation when a close of its item arrives.
    cancel: CancellationToken,
    /// How often a place had become free when it was started.
    places_freed: u64,
}

pub(super) struct Actor {
    pub(super) context: Arc<Context>,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) lanes: Lanes,
    /// What runs.
    running: HashMap<LaneKey, RunningJob>,
    /// How often a session's place became free.
    places_freed: u64,
    requests: HashMap<u64, RequestWork>,
    next_request: u64,
    /// The newest delivery that has been read.
    read_through: i64,
    tasks: TaskTracker,
    stopping: bool,
}

impl Actor {
    pub(super) fn new(context: Arc<Context>, messages: mpsc::UnboundedReceiver<Message>) -> Self {
        Self {
            context,
            messages,
            lanes: Lanes::default(),
            running: HashMap::new(),
            places_freed: 0,
            requests: HashMap::new(),
            next_request: 0,
            read_through: 0,
            tasks: TaskTracker::new(),
            stopping: false,
        }
    }

    /// Runs until [`Message::Stop`] was received and what ran has ended.
    pub(super) async fn run(mut self) {
        let mut settings = self.context.settings.clone();
        loop {
            if !self.stopping {
                self.start_ready();
            }
            self.context.publish_load(Load {
                lanes: self.lanes.len(),
                running: self.lanes.running(),
            });
            if self.stopping && self.lanes.running() == 0 {
                break;
            }
            let due = self
                .lanes
                .next_due(clock::now_ms())
                .filter(|_| !self.stopping);
            let message = tokio::select! {
                message = self.messages.recv() => message,
                // There may be more places now.
                Ok(()) = settings.changed() => {
                    self.lanes.place_free();
                    continue;
                }
                () = wait_until(due), if due.is_some() => continue,
            };
            match message {
                Some(Message::Wake) => self.read_new().await,
                Some(Message::Replayed(seq)) => self.read_one(seq).await,
                Some(Message::Request {
                    lane,
                    repository,
                    work,
                }) => {
                    self.push_request(&lane, &repository, work);
                }
                Some(Message::Ended { lane, ended }) => self.ended(&lane, ended).await,
                Some(Message::Waits { lane, number, work }) => {
                    self.requests.insert(number, work);
                    self.ended(&lane, Ended::RequestForPlace(number)).await;
                }
                Some(Message::PlaceFree) => {
                    self.places_freed += 1;
                    self.lanes.place_free();
                }
                Some(Message::Stop) | None => {
                    self.stopping = true;
                    self.refuse_waiting_requests();
                }
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn push_request(&mut self, lane: &str, repository: &str, work: RequestWork) {
        if self.stopping {
            refuse(work);
            return;
        }
        let number = self.next_request;
        self.next_request += 1;
        self.requests.insert(number, work);
        self.lanes.push_request(lane, repository, number);
    }

    fn refuse_waiting_requests(&mut self) {
        for (_, work) in self.requests.drain() {
            refuse(work);
        }
    }

    /// Reads what was stored since, understands it, and puts it into lanes.
    async fn read_new(&mut self) {
        loop {
            let after = self.read_through;
            let batch = self
                .context
                .store
                .read(move |reader| reader.pending_after(after, TRIAGE_BATCH))
                .await;
            let batch = match batch {
                Ok(batch) => batch,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(
                        error = format!("{:#}", anyhow::Error::from(error)),
                        "Stored deliveries could not be read; tried again at the next one."
                    );
                    return;
                }
            };
            let Some(last) = batch.last() else { return };
            self.read_through = last.row.seq;
            let whole = batch.len() < TRIAGE_BATCH as usize;
            let sorted = triage::sort(&self.context, batch).await;
            for placed in sorted {
                self.place(placed).await;
            }
            if whole {
                return;
            }
            // What is ready need not wait until everything has been read.
            if !self.stopping {
                self.start_ready();
            }
        }
    }

    async fn read_one(&mut self, seq: i64) {
        // A delivery that has not been read at all comes with the others.
        if seq > self.read_through {
            self.read_new().await;
            return;
        }
        let found = self
            .context
            .store
            .read(move |reader| reader.delivery_with_body(seq))
            .await;
        match found {
            Ok(Some(pending)) => {
                for placed in triage::sort(&self.context, vec![pending]).await {
                    self.place(placed).await;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                    error = format!("{:#}", anyhow::Error::from(error)),
                    seq,
                    "A replayed delivery could not be read; the next start takes it up."
                );
            }
        }
    }

    async fn place(&mut self, placed: triage::Placed) {
        let interrupted =
            self.lanes
                .push_delivery(&placed.lane, &placed.repository, placed.waiting);
        if interrupted.running
            && let Some(job) = self.running.get(&placed.lane)
        {
            job.cancel.cancel();
        }
        for waiting in interrupted.superseded {
            self.context.supersede(&placed.lane, &waiting).await;
        }
    }

    fn start_ready(&mut self) {
        let limit = self.context.settings().dispatches;
        while let Some((lane, job)) = self.lanes.next(clock::now_ms(), limit) {
            let cancel = CancellationToken::new();
            let job_that_runs = RunningJob {
                cancel: cancel.clone(),
                places_freed: self.places_freed,
            };
            self.running.insert(lane.clone(), job_that_runs);
            let context = Arc::clone(&self.context);
            match job {
                Job::Delivery {
                    waiting,
                    superseded,
                    close_waits,
                } => {
                    if close_waits && !waiting.closes {
                        cancel.cancel();
                    }
                    let lane = lane.clone();
                    self.tasks.spawn(async move {
                        for earlier in superseded {
                            context.supersede(&lane, &earlier).await;
                        }
                        let ended = super::attempt::deliver(&context, waiting, &cancel).await;
                        context.send(Message::Ended { lane, ended });
                    });
                }
                Job::Request(number) => {
                    let Some(work) = self.requests.remove(&number) else {
                        self.lanes.ended(&lane, Ended::Done);
                        continue;
                    };
                    let lane = lane.clone();
                    self.tasks.spawn(async move {
                        let waits = super::asked::work(&context, work, &cancel).await;
                        context.send(match waits {
                            None => Message::Ended {
                                lane,
                                ended: Ended::Done,
                            },
                            Some(work) => Message::Waits { lane, number, work },
                        });
                    });
                }
            }
        }
    }

    async fn ended(&mut self, lane: &str, ended: Ended) {
        let waits = matches!(ended, Ended::ForPlace(_) | Ended::RequestForPlace(_));
        self.lanes.ended(lane, ended);
        let job = self.running.remove(lane);
        // A place that became free between its look and now is not waited for.
        if waits && job.is_none_or(|job| job.places_freed != self.places_freed) {
            self.lanes.place_free();
        }
        if let Some(waiting) = self.lanes.give_way_to_close(lane) {
            self.context.supersede(lane, &waiting).await;
        }
    }
}

fn refuse(work: RequestWork) {
    match work {
        RequestWork::Asked { answer, .. } => {
            let _gone = answer.send(Err(RequestError::ShuttingDown));
        }
        // Found again at the next start.
        RequestWork::Settle { .. }
        | RequestWork::Expire { .. }
        | RequestWork::Reconcile { .. }
        | RequestWork::Tidy { .. } => {}
    }
}

async fn wait_until(due: Option<i64>) {
    let Some(due) = due else { return };
    let wait = u64::try_from(due - clock::now_ms()).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(wait)).await;
}
