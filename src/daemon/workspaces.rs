//! The workspaces: one for each root that is configured, or that a checkout
//! still stands below.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::DaemonError;
use crate::config::{self, Config, Environment};
use crate::dispatch::OpenWorkspace;
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target;
use crate::workspace::{MissingBranch, OpenReport, Workspace, WorkspaceOptions};

/// Makes workspaces, each root's once for a configuration.
pub(super) struct Workspaces {
    config: Mutex<Arc<Config>>,
    environment: Environment,
    supplied: Option<OpenWorkspace>,
    told: UnboundedSender<LogEvent>,
    opened: Mutex<HashMap<PathBuf, Workspace>>,
}

impl Workspaces {
    pub(super) fn new(
        config: Arc<Config>,
        environment: Environment,
        supplied: Option<OpenWorkspace>,
        told: UnboundedSender<LogEvent>,
    ) -> Self {
        Self {
            config: Mutex::new(config),
            environment,
            supplied,
            told,
            opened: Mutex::new(HashMap::new()),
        }
    }

    /// Opens the configured workspace, if one is configured.
    /// Returns what was found there; deletes in the background what was removed
    /// and not yet deleted when the last daemon ended.
    pub(super) async fn open_configured(&self, config: &Config) -> Result<OpenReport, DaemonError> {
        let Some(root) = config.routing.workspace.root.clone() else {
            return Ok(OpenReport::default());
        };
        let failed = |source| DaemonError::Workspace {
            root: root.clone(),
            source,
        };
        let workspace = self.at(&root);
        let report = workspace
            .open(&CancellationToken::new())
            .await
            .map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = workspace.sweep_trash().await {
                tracing::warn!(%error, "The trash was not emptied; the next removal tries again.");
            }
        });
        Ok(report)
    }

    /// Returns the workspace at a root, which is one whatever name leads to it.
    pub(super) fn at(&self, root: &Path) -> Workspace {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened.get(root) {
            return known.clone();
        }
        let real = root.canonicalize().ok();
        let same = opened
            .iter()
            .find(|(other, _)| real.is_some() && other.canonicalize().ok() == real);
        let workspace = match (same, &self.supplied) {
            (Some((_, same)), _) => same.clone(),
            (None, Some(supplied)) => supplied(root),
            (None, None) => Workspace::with_options(self.options(root)),
        };
        opened.insert(root.to_owned(), workspace.clone());
        workspace
    }

    fn options(&self, root: &Path) -> WorkspaceOptions {
        let config = {
            let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&config)
        };
        self.options_of(&config, root)
    }

    fn options_of(&self, config: &Config, root: &Path) -> WorkspaceOptions {
        WorkspaceOptions {
            told: Some(self.told.clone()),
            ..options_of(config, &self.environment, root)
        }
    }

    /// Returns every workspace that was asked for.
    pub(super) fn all(&self) -> Vec<Workspace> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.values().cloned().collect()
    }

    /// Goes by another configuration. A workspace keeps its lock and its
    /// repositories; only how it makes new checkouts changes.
    pub(super) fn reconfigure(&self, config: &Arc<Config>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(config);
        if self.supplied.is_some() {
            return;
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for (root, workspace) in opened.iter_mut() {
            *workspace = workspace.reconfigured(self.options_of(config, root));
        }
    }
}

fn options_of(config: &Config, environment: &Environment, root: &Path) -> WorkspaceOptions {
    let workspace = &config.routing.workspace;
    WorkspaceOptions {
        strategy: workspace.strategy,
        git_binary: PathBuf::from(&workspace.git_binary),
        git_timeout: workspace.git_timeout,
        min_free_bytes: workspace.min_free_bytes,
        min_free_inodes: workspace.min_free_inodes,
        missing_branch: match workspace.missing_branch {
            config::MissingBranch::Fail => MissingBranch::Fail,
            config::MissingBranch::Default => MissingBranch::Default,
        },
        regenerable: workspace.removal.regenerable.clone(),
        archive_max_bytes: workspace.removal.archive_max_bytes,
        protocols: workspace
            .hosts
            .iter()
            .filter_map(|(host, entry)| {
                let url = entry.clone_url.as_deref()?;
                Some((
                    host.to_lowercase(),
                    vec![repo_target::scheme(url).to_owned()],
                ))
            })
            .collect(),
        environment: Some(environment.vars().collect()),
        ..WorkspaceOptions::new(root)
    }
}
