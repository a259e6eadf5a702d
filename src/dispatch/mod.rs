//! What happens to a delivery after it is stored: order, routing, effects,
//! retries, and taking everything up again at start.
//!
//! # What this module promises
//!
//! 1. Within a work item effects happen in the order of arrival, one at a time.
//! 2. Every transition is stored, with its event, before its effect; every
//!    effect can be done again and then changes nothing.
//! 3. A session runs in the checkout that was prepared for it, or not at all.
//! 4. What was accepted ends as done, dropped or parked, and says so.
//!
//! # How
//!
//! One loop ([`actor`]) owns the lanes. It sorts stored deliveries into them
//! ([`triage`]) and starts a task for each job: an attempt at a delivery
//! ([`attempt`]), or a request ([`asked`]). The effects are in [`checkout`],
//! [`session`], [`closing`] and [`restoring`]. What is taken up at start is in
//! [`recovery`]; store and disk are compared then and in [`rounds`]
//! ([`reconcile`]), and [`gc`] gives back what nobody needs; what removed
//! checkouts left is in [`archives`], until [`retention`] lets it go.

mod actor;
mod archives;
mod asked;
mod attempt;
mod breaker;
mod checkout;
mod closing;
mod facts;
mod failure;
pub mod gc;
mod job;
mod judging;
mod launching;
mod reconcile;
mod recovery;
pub mod request;
mod restoring;
mod retention;
mod rounds;
mod session;
pub mod settings;
mod triage;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use actor::{Actor, Message, RequestWork};
pub use archives::Archived;
use request::{Answer, Request, RequestError, What};
use settings::Settings;

use crate::domain::lane::Waiting;
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::reason::DropReason;
use crate::domain::work_item::{Forge, ItemName, ItemQuery};
use crate::store::{DeliveryState, ItemRow, Store, StoreError};
use crate::workspace::Workspace;

/// How long a claim on a work item is good for without being renewed.
const LEASE_MS: i64 = 60_000;

/// What the dispatcher needs of its surroundings.
pub struct Options {
    /// The state.
    pub store: Store,
    /// What is in force; a reload sends a new value.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Directory of the state: session files and prompts are below it.
    pub state_root: PathBuf,
    /// The program that starts sessions: this very binary.
    pub launcher: PathBuf,
    /// The daemon's own environment, of which sessions inherit a part.
    pub environment: Vec<(OsString, OsString)>,
    /// Returns the workspace of a root.
    pub open_workspace: OpenWorkspace,
    /// The wait before the second attempt; see [`crate::domain::backoff`].
    pub first_wait_ms: u64,
}

/// Returns the workspace at a root, as the configuration in force has it.
pub type OpenWorkspace = Arc<dyn Fn(&Path) -> Workspace + Send + Sync>;

/// A handle to the dispatcher; cheap to clone.
#[derive(Clone)]
pub struct Dispatcher {
    context: Arc<Context>,
}

/// What the dispatcher is doing at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Load {
    /// Lanes with something in them.
    pub lanes: usize,
    /// Lanes being worked on.
    pub running: usize,
}

/// What jobs share.
pub(crate) struct Context {
    pub(crate) store: Store,
    settings: watch::Receiver<Arc<Settings>>,
    pub(crate) state_root: PathBuf,
    pub(crate) launcher: PathBuf,
    pub(crate) environment: Vec<(OsString, OsString)>,
    open_workspace: OpenWorkspace,
    pub(crate) first_wait_ms: u64,
    /// Unique for each start of a daemon; claims on items are in its name.
    owner: String,
    messages: mpsc::UnboundedSender<Message>,
    load: watch::Sender<Load>,
    /// Ends what watches sessions; the sessions themselves live on.
    pub(crate) watching: CancellationToken,
    pub(crate) watchers: TaskTracker,
    /// What is foreign below a root and was told since the daemon runs.
    strangers_told: Mutex<HashSet<PathBuf>>,
    /// Held by the comparison that is being made.
    rounds: tokio::sync::Mutex<()>,
    /// Held by whoever gives back what nobody needs.
    reclaiming: tokio::sync::Mutex<()>,
}

/// A dispatcher that runs.
pub struct Running {
    dispatcher: Dispatcher,
    actor: tokio::task::JoinHandle<()>,
}

/// Starts the dispatcher: compares store, disk and sessions, then takes up
/// everything that is unfinished.
///
/// # Errors
///
/// Returns [`StoreError`] if the state cannot be read.
pub async fn start(options: Options) -> Result<Running, StoreError> {
    let (messages, inbox) = mpsc::unbounded_channel();
    let (load, _) = watch::channel(Load::default());
    let context = Arc::new(Context {
        store: options.store,
        settings: options.settings,
        state_root: options.state_root,
        launcher: options.launcher,
        environment: options.environment,
        open_workspace: options.open_workspace,
        first_wait_ms: options.first_wait_ms,
        owner: uuid::Uuid::now_v7().to_string(),
        messages,
        load,
        watching: CancellationToken::new(),
        watchers: TaskTracker::new(),
        strangers_told: Mutex::default(),
        rounds: tokio::sync::Mutex::default(),
        reclaiming: tokio::sync::Mutex::default(),
    });
    recovery::recover(&context).await?;
    context.watchers.spawn(rounds::run(Arc::clone(&context)));
    let actor = tokio::spawn(Actor::new(Arc::clone(&context), inbox).run());
    context.send(Message::Wake);
    context
        .watchers
        .spawn(retention::let_go(Arc::clone(&context)));
    Ok(Running {
        dispatcher: Dispatcher { context },
        actor,
    })
}

impl Running {
    /// Returns a handle.
    pub fn dispatcher(&self) -> Dispatcher {
        self.dispatcher.clone()
    }

    /// Begins nothing new and waits for what runs, at most until `deadline` is
    /// cancelled; what is left then is taken up at the next start.
    pub async fn stop(self, deadline: CancellationToken) {
        self.dispatcher.context.send(Message::Stop);
        let mut actor = self.actor;
        tokio::select! {
            _ = &mut actor => {}
            () = deadline.cancelled() => actor.abort(),
        }
        self.dispatcher.context.watching.cancel();
        self.dispatcher.context.watchers.close();
        self.dispatcher.context.watchers.wait().await;
    }
}

impl Dispatcher {
    /// Says that deliveries were stored.
    pub fn wake(&self) {
        self.context.send(Message::Wake);
    }

    /// Returns what the dispatcher is doing.
    pub fn load(&self) -> Load {
        *self.context.load.borrow()
    }

    /// Returns whether the loop still runs.
    pub fn is_alive(&self) -> bool {
        !self.context.messages.is_closed()
    }

    /// Asks for something; answers when it is done.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError`] if it was not done.
    ///
    /// # Cancel safety
    ///
    /// The work goes on when the future is dropped.
    pub async fn request(&self, request: Request) -> Result<Answer, RequestError> {
        let found = self.find(&request.item).await?;
        let (lane, repository, item) = match (found, &request.what) {
            (Some(item), _) => (item.slug, repository_key(&item.name), Some(item.id)),
            (None, What::Prepare { .. } | What::Start) => {
                let name = self.name_of(&request.item)?;
                (name.slug(), repository_key(&name), None)
            }
            (None, _) => {
                return Err(RequestError::NotFound(format!(
                    "no such work item is known: {}",
                    describe(&request.item)
                )));
            }
        };
        let (answer, answered) = oneshot::channel();
        self.context.send(Message::Request {
            lane,
            repository,
            work: RequestWork::Asked {
                item,
                request: Box::new(request),
                answer,
            },
        });
        answered.await.map_err(|_gone| RequestError::ShuttingDown)?
    }

    /// Takes a finished delivery up afresh. Returns false if there is none of
    /// this id.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError::Refused`] for one that waits or runs, and, unless
    /// `force`, for one that had its effect.
    pub async fn replay(&self, delivery: &str, force: bool) -> Result<bool, RequestError> {
        let id = delivery.to_owned();
        let outcome = self
            .context
            .store
            .write(move |tx| {
                let Some(row) = tx.delivery(&id)? else {
                    return Ok(None);
                };
                let refused = match row.state {
                    DeliveryState::Received | DeliveryState::Running => {
                        Some(format!("delivery {id} is {} already", row.state.as_str()))
                    }
                    DeliveryState::Done if !force => Some(format!(
                        "delivery {id} had its effect; --force takes it up again all the same"
                    )),
                    DeliveryState::Done | DeliveryState::Dropped | DeliveryState::Parked => None,
                };
                if let Some(refused) = refused {
                    return Ok(Some(Err(refused)));
                }
                tx.replay_delivery(row.seq)?;
                Ok(Some(Ok(row.seq)))
            })
            .await?;
        match outcome {
            None => Ok(false),
            Some(Err(refused)) => Err(RequestError::Refused(refused)),
            Some(Ok(seq)) => {
                self.context.send(Message::Replayed(seq));
                Ok(true)
            }
        }
    }

    /// Returns the one item that is meant, if it is known.
    async fn find(&self, query: &ItemQuery) -> Result<Option<ItemRow>, RequestError> {
        if let ItemQuery::Name {
            host: None,
            owner,
            repo,
            number,
        } = query
        {
            // Without a host the default one is meant; another only if nothing is there.
            let by_default = ItemQuery::Name {
                host: Some(self.context.settings().policy.hosts.default_host.clone()),
                owner: owner.clone(),
                repo: repo.clone(),
                number: *number,
            };
            let found = self
                .context
                .store
                .read(move |reader| reader.items_named(&by_default))
                .await?;
            if let Some(item) = found.into_iter().next() {
                return Ok(Some(item));
            }
        }
        let asked = query.clone();
        let mut found = self
            .context
            .store
            .read(move |reader| reader.items_named(&asked))
            .await?;
        let hosts: std::collections::BTreeSet<_> =
            found.iter().map(|item| item.name.host.clone()).collect();
        if hosts.len() > 1 {
            return Err(RequestError::Ambiguous(format!(
                "{} is known on several hosts ({}); write the host too",
                describe(query),
                hosts.into_iter().collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(if found.is_empty() {
            None
        } else {
            Some(found.swap_remove(0))
        })
    }

    fn name_of(&self, query: &ItemQuery) -> Result<ItemName, RequestError> {
        match query {
            ItemQuery::Slug(slug) => Err(RequestError::NotFound(format!(
                "no work item has the slug {slug}"
            ))),
            ItemQuery::Name {
                host,
                owner,
                repo,
                number,
            } => {
                let settings = self.context.settings();
                let host = host
                    .clone()
                    .unwrap_or_else(|| settings.policy.hosts.default_host.clone());
                // Refuses hosts that are not served and names that are not safe.
                let target = settings
                    .policy
                    .hosts
                    .target(&host, owner, repo)
                    .map_err(|error| RequestError::Refused(error.to_string()))?;
                Ok(ItemName {
                    forge: Forge::Github,
                    host: target.host,
                    owner: target.owner,
                    repo: target.repo,
                    repo_id: None,
                    number: *number,
                })
            }
        }
    }
}

/// Returns what lanes share their turns by.
fn repository_key(name: &ItemName) -> String {
    format!("{}/{}/{}", name.host, name.owner, name.repo).to_lowercase()
}

fn describe(query: &ItemQuery) -> String {
    match query {
        ItemQuery::Slug(slug) => slug.clone(),
        ItemQuery::Name {
            host: None,
            owner,
            repo,
            number,
        } => format!("{owner}/{repo}#{number}"),
        ItemQuery::Name {
            host: Some(host),
            owner,
            repo,
            number,
        } => {
            format!("{host}/{owner}/{repo}#{number}")
        }
    }
}

impl Context {
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    fn send(&self, message: Message) {
        // Only after the loop has ended; everything is found again at the next start.
        let _stopped = self.messages.send(message);
    }

    fn publish_load(&self, load: Load) {
        self.load.send_if_modified(|present| {
            let changed = *present != load;
            *present = load;
            changed
        });
    }

    /// Returns the workspace of a root: the configured one, or that of an older
    /// checkout.
    pub(crate) fn workspace(&self, root: &Path) -> Workspace {
        (self.open_workspace)(root)
    }

    /// Stores that a delivery was made pointless by a later one.
    async fn supersede(&self, lane: &str, waiting: &Waiting) {
        let (seq, slug) = (waiting.seq, lane.to_owned());
        let entry = Entry::new(LogEvent::DeliveryDropped {
            reason: DropReason::Superseded,
        })
        .of_delivery(waiting.id.clone());
        let dropped = self
            .store
            .write(move |tx| {
                tx.delivery_dropped(seq, DropReason::Superseded)?;
                // An item of which nothing was worked on yet is not known.
                match tx.item_of_slug(&slug)? {
                    Some(item) => tx.append(&entry.of_item(item.reference)),
                    None => tx.append(&entry),
                }
            })
            .await;
        if let Err(error) = dropped {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                seq,
                "A superseded delivery could not be finished; the next start takes it up."
            );
        }
    }
}
