//! Another configuration while the daemon runs: all of it, or nothing.

use std::sync::{Arc, PoisonError};

use super::{Shared, inbox_limits, ingress_settings, secrets_of};
use crate::config;
use crate::dispatch::settings::Settings;
use crate::domain::log_event::{Entry, LogEvent};

/// What came of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// There is no file, or nothing in it changed.
    Unchanged,
    /// In force, but for what needs a restart.
    Changed {
        /// Key paths that changed.
        changed: Vec<String>,
        /// Those of them that a restart is needed for.
        needs_restart: Vec<String>,
    },
    /// It has errors; nothing changed.
    Rejected(String),
}

/// Reads the file again and puts it in force if it has no errors.
pub(super) async fn reload(shared: &Shared) -> Reloaded {
    let reloaded = apply(shared).await;
    let event = match &reloaded {
        Reloaded::Unchanged => return reloaded,
        Reloaded::Changed {
            changed,
            needs_restart,
        } => {
            for key in needs_restart {
                tracing::warn!(key, "This change takes effect at the next start.");
            }
            LogEvent::ConfigReloaded {
                changed: changed.clone(),
                needs_restart: needs_restart.clone(),
            }
        }
        Reloaded::Rejected(error) => {
            tracing::error!("The changed configuration is not used:\n{error}");
            LogEvent::ConfigRejected {
                error: error.clone(),
            }
        }
    };
    if let Err(error) = shared.store.tell(Entry::new(event)).await {
        tracing::error!(
            error = format!("{:#}", anyhow::Error::from(error)),
            "The reload could not be stored."
        );
    }
    reloaded
}

async fn apply(shared: &Shared) -> Reloaded {
    let Some(path) = shared.config_path.clone() else {
        return Reloaded::Unchanged;
    };
    let environment = shared.environment.clone();
    let loaded = tokio::task::spawn_blocking(move || config::load(&path, &environment)).await;
    let loaded = match loaded {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(errors)) => return Reloaded::Rejected(errors.to_string()),
        Err(panic) => return Reloaded::Rejected(panic.to_string()),
    };
    for warning in &loaded.warnings {
        tracing::warn!("{}", warning.one_line());
    }
    let old = shared.config();
    let mut new = loaded.config;
    let changes = config::changes(&old, &new);
    // What needs a restart stays as it is until then.
    new.state.clone_from(&old.state);
    new.control.clone_from(&old.control);
    new.event_log.path.clone_from(&old.event_log.path);
    new.webhooks
        .github
        .host
        .clone_from(&old.webhooks.github.host);
    new.webhooks.github.port = old.webhooks.github.port;
    new.webhooks
        .github
        .path
        .clone_from(&old.webhooks.github.path);
    let mut needs_restart = changes.needs_restart;
    if new.webhooks.github.enabled != old.webhooks.github.enabled {
        needs_restart.push("webhooks.github.enabled".to_owned());
    }
    let new = Arc::new(new);
    // A secret may have changed behind its name.
    let secrets = match secrets_of(&new, &shared.environment) {
        Ok(secrets) => secrets,
        Err(error) => return Reloaded::Rejected(error.to_string()),
    };
    let settings = match Settings::of(&new) {
        Ok(settings) => settings,
        Err(error) => return Reloaded::Rejected(error.to_string()),
    };
    if new.routing.workspace.root != old.routing.workspace.root
        && let Err(error) = open_new_root(shared, &new).await
    {
        return Reloaded::Rejected(error);
    }
    shared.ingress.set_secrets(secrets);
    if changes.changed.is_empty() {
        return Reloaded::Unchanged;
    }
    shared.ingress.set_settings(ingress_settings(&new));
    shared.inbox.set_limits(inbox_limits(&new));
    shared.workspaces.reconfigure(&new);
    shared.settings.send_replace(Arc::new(settings));
    shared
        .rotation
        .send_replace((new.event_log.rotate_bytes, new.event_log.keep_files));
    shared.notices.send_replace(new.notify.clone());
    shared.control.replace_facts(shared.facts.with(&new));
    *shared.config.lock().unwrap_or_else(PoisonError::into_inner) = new;
    Reloaded::Changed {
        changed: changes.changed,
        needs_restart,
    }
}

async fn open_new_root(shared: &Shared, new: &Arc<config::Config>) -> Result<(), String> {
    shared
        .workspaces
        .open_configured(new)
        .await
        .map(drop)
        .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}
