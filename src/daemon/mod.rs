//! The daemon: everything built from the configuration, and taken down in order.
//!
//! # Order
//!
//! Up: state directory and its lock, store, event log, workspace, listeners
//! bound, dispatcher (which takes up what is unfinished), listeners served,
//! `daemon.started`. Down: the webhook listener first, so that nothing new is
//! accepted; then the dispatcher, which finishes what runs; then the control
//! socket, `daemon.stopped`, event log, store. Sessions live on.
//!
//! Nothing is decided here.

mod error;
pub mod logging;
mod notices;
mod reload;
mod upkeep;
mod workspaces;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use error::DaemonError;
pub use reload::Reloaded;

use crate::api::{self, RenderMetrics};
use crate::clock;
use crate::config::{self, Config, Environment};
use crate::control::{Control, Facts, Limits, Listeners};
use crate::dispatch::settings::{self, Settings};
use crate::dispatch::{self, Dispatcher, OpenWorkspace};
use crate::domain::backoff;
use crate::domain::log_event::{Entry, LogEvent};
use crate::event_log::{Continuity, EventLog, EventLogSettings};
use crate::files::LockFile;
use crate::inbox::{Inbox, InboxLimits};
use crate::ingress::{self, Ingress, IngressSettings, ServeLimits};
use crate::store::Store;
use crate::workspace::OpenReport;
use workspaces::Workspaces;

/// How long what runs may take once the daemon was asked to stop.
pub const STOP_GRACE: Duration = Duration::from_secs(30);

/// How often the ledger is searched for deliveries that are old enough to forget.
const PRUNE_EVERY: Duration = Duration::from_hours(6);

/// What a daemon is made from.
pub struct Options {
    /// The configuration.
    pub config: Config,
    /// The file it came from; without one nothing is reloaded.
    pub config_path: Option<PathBuf>,
    /// Where variables are looked up.
    pub environment: Environment,
    /// The program that starts sessions: a build of this very binary.
    pub launcher: PathBuf,
    /// Opens workspaces, for a program that embeds the daemon and brings its
    /// own; none for what the configuration says. It survives a reload.
    pub open_workspace: Option<OpenWorkspace>,
    /// The wait before the second attempt at a delivery.
    pub first_wait_ms: u64,
}

impl Options {
    /// Returns the options of a daemon of this program.
    pub fn new(config: Config, environment: Environment) -> Self {
        Self {
            config,
            config_path: None,
            environment,
            launcher: PathBuf::from("/proc/self/exe"),
            open_workspace: None,
            first_wait_ms: backoff::FIRST_WAIT_MS,
        }
    }
}

/// A daemon that runs.
pub struct Daemon {
    shared: Arc<Shared>,
    webhooks: Option<SocketAddr>,
    socket: PathBuf,
    intake: JoinHandle<()>,
    intake_stop: CancellationToken,
    api: JoinHandle<()>,
    api_stop: CancellationToken,
    background: CancellationToken,
    tasks: tokio_util::task::TaskTracker,
    dispatch: dispatch::Running,
    event_log: EventLog,
    _lock: LockFile,
}

/// What a reload changes.
struct Shared {
    config: Mutex<Arc<Config>>,
    config_path: Option<PathBuf>,
    environment: Environment,
    settings: watch::Sender<Arc<Settings>>,
    workspaces: Arc<Workspaces>,
    inbox: Inbox,
    ingress: Ingress,
    control: Control,
    store: Store,
    facts: FactsBase,
    rotation: watch::Sender<(u64, u32)>,
    notices: watch::Sender<config::Notify>,
}

/// What never changes about a daemon.
struct FactsBase {
    started_at: i64,
    node: String,
    listeners: Listeners,
}

impl FactsBase {
    fn with(&self, config: &Config) -> Facts {
        let workspace = &config.routing.workspace;
        Facts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            node: self.node.clone(),
            listeners: self.listeners.clone(),
            state_root: config.state.root.clone(),
            workspace_root: workspace.root.clone(),
            event_log: config.event_log.path.clone(),
            on_close: settings::on_close_of(config),
            archive_days: workspace.removal.archive_days,
            limits: Limits {
                max_pending: config.inbox.max_pending,
                max_checkouts: workspace.max_checkouts,
                max_sessions: u64::try_from(config.sessions.max_concurrent).unwrap_or(u64::MAX),
                min_free_bytes: workspace.min_free_bytes,
                min_free_inodes: workspace.min_free_inodes,
            },
        }
    }
}

impl Daemon {
    /// Starts a daemon; it is ready when this returns.
    ///
    /// # Errors
    ///
    /// Returns [`DaemonError`], which says what stands in the way and what to
    /// do; nothing keeps running then.
    pub async fn start(options: Options) -> Result<Self, DaemonError> {
        let started_at = clock::now_ms();
        let config = Arc::new(options.config);
        let state_root = config.state.root.clone();
        prepare_state(&state_root)?;
        let lock = LockFile::acquire(&state_root.join("daemon.lock")).map_err(|source| {
            DaemonError::Locked {
                path: state_root.clone(),
                source,
            }
        })?;
        let secrets = secrets_of(&config, &options.environment)?;
        let settings = Arc::new(Settings::of(&config)?);
        let node = node_name();
        let database = state_root.join("innkeeper.db");
        let store = Store::open(&database, &node).map_err(|source| DaemonError::Store {
            path: database.clone(),
            source,
        })?;

        let (told, told_events) = tokio::sync::mpsc::unbounded_channel();
        let workspaces = Arc::new(Workspaces::new(
            Arc::clone(&config),
            options.environment.clone(),
            options.open_workspace,
            told,
        ));
        let opened = workspaces.open_configured(&config).await?;

        // Bound before anything is taken up again: an address in use must not
        // cost more than a message.
        let github = &config.webhooks.github;
        let listener = if github.enabled {
            Some(bind_webhooks(&github.host, github.port).await?)
        } else {
            None
        };
        let webhooks = listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok());
        let socket = api::bind(&config.control.socket).await?;

        let event_log = EventLog::open(store.clone(), event_log_settings(&config)).await?;
        warn_of_discontinuity(event_log.continuity());

        tell_opened(&store, opened).await;

        let (settings_sender, settings_watch) = watch::channel(settings);
        let open: OpenWorkspace = {
            let workspaces = Arc::clone(&workspaces);
            Arc::new(move |root: &Path| workspaces.at(root))
        };
        let dispatch = dispatch::start(dispatch::Options {
            store: store.clone(),
            settings: settings_watch,
            state_root: state_root.clone(),
            launcher: options.launcher,
            environment: options
                .environment
                .vars()
                .collect::<Vec<(OsString, OsString)>>(),
            open_workspace: open,
            first_wait_ms: options.first_wait_ms,
        })
        .await
        .map_err(|source| DaemonError::Store {
            path: database,
            source,
        })?;
        let dispatcher = dispatch.dispatcher();

        let inbox = {
            let dispatcher = dispatcher.clone();
            Inbox::new(
                store.clone(),
                state_root.clone(),
                inbox_limits(&config),
                move || {
                    dispatcher.wake();
                },
            )
        };
        let ingress = Ingress::new(inbox.clone(), ingress_settings(&config), secrets);
        let facts = FactsBase {
            started_at,
            node,
            listeners: Listeners {
                webhooks: webhooks.map(|address| format!("http://{address}{}", github.path)),
                control: socket.path().display().to_string(),
            },
        };
        let control = Control::new(
            store.clone(),
            dispatcher.clone(),
            facts.with(&config),
            problems(ingress.clone(), dispatcher),
        );
        let background = CancellationToken::new();
        let tasks = tokio_util::task::TaskTracker::new();
        let (rotation, _) =
            watch::channel((config.event_log.rotate_bytes, config.event_log.keep_files));
        let (notices, notices_watch) = watch::channel(config.notify.clone());
        tasks.spawn(notices::run(
            config.event_log.path.clone(),
            event_log.written(),
            notices_watch,
            options.environment.vars().collect(),
            background.clone(),
        ));
        let shared = Arc::new(Shared {
            config: Mutex::new(Arc::clone(&config)),
            config_path: options.config_path,
            environment: options.environment,
            settings: settings_sender,
            workspaces,
            inbox: inbox.clone(),
            ingress: ingress.clone(),
            control: control.clone(),
            store: store.clone(),
            facts,
            rotation,
            notices,
        });
        tasks.spawn(prune(Arc::clone(&shared), background.clone()));
        tasks.spawn(upkeep::tell(store.clone(), told_events, background.clone()));
        tasks.spawn(upkeep::maintain(
            Arc::clone(&shared.workspaces),
            background.clone(),
        ));

        let intake_stop = CancellationToken::new();
        let intake = match listener {
            Some(listener) => tokio::spawn(ingress::serve(
                listener,
                ingress.router(),
                ServeLimits::default(),
                intake_stop.clone(),
            )),
            None => tokio::spawn(async {}),
        };
        let api_stop = CancellationToken::new();
        let socket_path = socket.path().to_owned();
        let metrics = config.metrics.enabled.then(metrics_renderer);
        let api = tokio::spawn(api::serve(
            socket,
            api::router(control, metrics),
            api_stop.clone(),
        ));

        let daemon = Self {
            webhooks,
            socket: socket_path,
            intake,
            intake_stop,
            api,
            api_stop,
            background,
            tasks,
            dispatch,
            event_log,
            _lock: lock,
            shared,
        };
        daemon.tell_started().await;
        Ok(daemon)
    }

    async fn tell_started(&self) {
        let event = LogEvent::DaemonStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            webhooks: self.shared.facts.listeners.webhooks.clone(),
            control: Some(self.shared.facts.listeners.control.clone()),
        };
        self.tell(event).await;
    }

    async fn tell(&self, event: LogEvent) {
        if let Err(error) = self.shared.store.tell(Entry::new(event)).await {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "An event could not be stored."
            );
        }
    }

    /// Returns the address of the webhook listener, if there is one.
    pub const fn webhooks(&self) -> Option<SocketAddr> {
        self.webhooks
    }

    /// Returns the control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the operations, for a program that embeds the daemon.
    pub fn control(&self) -> Control {
        self.shared.control.clone()
    }

    /// Returns the dispatcher.
    pub fn dispatcher(&self) -> Dispatcher {
        self.dispatch.dispatcher()
    }

    /// Reads the configuration again and puts it in force if it has no errors.
    pub async fn reload(&self) -> Reloaded {
        let reloaded = reload::reload(&self.shared).await;
        let (bytes, files) = *self.shared.rotation.borrow();
        self.event_log.set_rotation(bytes, files);
        reloaded
    }

    /// Stops in order. What runs is finished within [`STOP_GRACE`], or until
    /// `now` is cancelled; the rest is taken up at the next start. Sessions live
    /// on.
    pub async fn stop(self, reason: &str, now: CancellationToken) {
        let deadline = now.child_token();
        let timer = {
            let deadline = deadline.clone();
            tokio::spawn(async move {
                tokio::time::sleep(STOP_GRACE).await;
                deadline.cancel();
            })
        };
        self.intake_stop.cancel();
        let mut intake = self.intake;
        tokio::select! {
            _ = &mut intake => {}
            () = deadline.cancelled() => intake.abort(),
        }
        self.dispatch.stop(deadline.clone()).await;
        self.api_stop.cancel();
        let mut api = self.api;
        tokio::select! {
            _ = &mut api => {}
            () = deadline.cancelled() => api.abort(),
        }
        timer.abort();
        let stopped = Entry::new(LogEvent::DaemonStopped {
            reason: reason.to_owned(),
        });
        if let Err(error) = self.shared.store.tell(stopped).await {
            tracing::warn!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "The end could not be stored."
            );
        }
        self.event_log.close().await;
        self.background.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.shared.store.close().await;
    }
}

fn prepare_state(root: &Path) -> Result<(), DaemonError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    for dir in [root.to_owned(), root.join("sessions"), root.join("prompts")] {
        builder.create(&dir).map_err(|source| DaemonError::State {
            path: dir.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Returns the name that stands in events: the host's.
fn node_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

async fn bind_webhooks(host: &str, port: u16) -> Result<TcpListener, DaemonError> {
    TcpListener::bind((host, port))
        .await
        .map_err(|source| DaemonError::Webhooks {
            address: format!("{host}:{port}"),
            source,
        })
}

/// Returns the secrets that requests are verified with.
fn secrets_of(config: &Config, environment: &Environment) -> Result<ingress::Secrets, DaemonError> {
    let (secrets, warnings) = config::resolve_secrets(config, environment)?;
    for warning in warnings {
        tracing::warn!("{}", warning.one_line());
    }
    let secrets: Vec<&[u8]> = secrets.iter().map(config::Secret::expose).collect();
    Ok(ingress::Secrets::new(&secrets)?)
}

fn event_log_settings(config: &Config) -> EventLogSettings {
    EventLogSettings {
        rotate_bytes: config.event_log.rotate_bytes,
        keep_files: config.event_log.keep_files,
        ..EventLogSettings::at(config.event_log.path.clone())
    }
}

fn inbox_limits(config: &Config) -> InboxLimits {
    InboxLimits {
        max_pending: config.inbox.max_pending,
        ..InboxLimits::default()
    }
}

fn ingress_settings(config: &Config) -> IngressSettings {
    let github = &config.webhooks.github;
    IngressSettings {
        path: github.path.clone(),
        allow_unsigned: github.allow_unsigned,
        max_body_bytes: u64::try_from(github.max_body_bytes).unwrap_or(u64::MAX),
        body_budget_bytes: u64::try_from(github.body_budget_bytes).unwrap_or(u64::MAX),
    }
}

fn warn_of_discontinuity(continuity: Continuity) {
    match continuity {
        Continuity::Whole => {}
        Continuity::FileAhead { file, store } => tracing::warn!(
            file,
            store,
            "The event log is ahead of the state: one of the two was replaced. Numbering goes on after the log."
        ),
        Continuity::Gap { first, last } => tracing::warn!(
            first,
            last,
            "Events are missing between the event log and the state: the log was replaced or cut."
        ),
    }
}

/// Tells what was put in order when the workspace was opened.
async fn tell_opened(store: &Store, report: OpenReport) {
    for problem in &report.problems {
        tracing::warn!("In the workspace: {problem}");
    }
    for ghost in &report.ghosts {
        tracing::warn!(
            record = %ghost.display(),
            "A half-made record of somebody's git broke every git in its repository; it was set aside."
        );
    }
    for removed in report.locks {
        let event = LogEvent::LockRemoved {
            path: removed.path.display().to_string(),
            proof: removed.proof,
        };
        if let Err(error) = store.tell(Entry::new(event)).await {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "An event could not be stored."
            );
        }
    }
}

fn problems(ingress: Ingress, dispatcher: Dispatcher) -> crate::control::Problems {
    Arc::new(move || {
        let mut problems = Vec::new();
        problems.extend(ingress.health().degraded);
        if !dispatcher.is_alive() {
            problems.push("the dispatcher has ended; restart the daemon".to_owned());
        }
        problems
    })
}

/// Returns what renders the metrics. The recorder is one for the process.
fn metrics_renderer() -> RenderMetrics {
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
    use std::sync::OnceLock;
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| PrometheusBuilder::new().install_recorder().ok());
    let handle = handle.clone();
    Arc::new(move || {
        handle.as_ref().map_or_else(String::new, |handle| {
            handle.run_upkeep();
            handle.render()
        })
    })
}

/// Forgets deliveries that are older than the ledger is kept.
async fn prune(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let days = shared.config().inbox.ledger_days;
        if let Err(error) = shared.inbox.prune(days).await {
            tracing::warn!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "Old deliveries could not be forgotten; tried again later."
            );
        }
        tokio::select! {
            () = tokio::time::sleep(PRUNE_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl Shared {
    fn config(&self) -> Arc<Config> {
        let config = self
            .config
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(&config)
    }
}
