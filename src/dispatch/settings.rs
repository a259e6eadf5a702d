//! The part of the configuration that the dispatcher reads, as it uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{self, Config, Prompt, Template};
use crate::domain::archive::AtRisk;
use crate::domain::checkout::Strategy;
use crate::domain::removal::OnClose;
use crate::domain::repo_target::{CloneProtocol, HostEntry, HostPolicy};
use crate::domain::routing::{BadPattern, Pattern, Policy, Rule, Then, Trust, When};
use crate::session::ProfileSpec;
use crate::session::prompt::{PromptSource, PromptText};

/// What is in force; replaced as a whole by a reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rules, trust, repositories, hosts.
    pub policy: Policy,
    /// None: sessions run in `spawn_workdir` and nothing is cloned.
    pub workspace: Option<WorkspaceSettings>,
    /// How checkouts go, also those of an earlier root.
    pub removal: RemovalSettings,
    /// Where sessions run without a workspace.
    pub spawn_workdir: PathBuf,
    /// The most deliveries worked on at once.
    pub dispatches: usize,
    /// The most attempts of one delivery.
    pub attempts: u32,
    /// Name of the profile of items that no rule gives one; none prepares only.
    pub default_profile: Option<String>,
    /// The most sessions at once.
    pub sessions: u32,
    /// How long a session has to end after it was asked.
    pub kill_grace: Duration,
    /// The most bytes of a session's log.
    pub log_bytes: u64,
    /// Profiles by name.
    pub profiles: BTreeMap<String, Profile>,
    /// Names of variables that no session may inherit.
    pub secret_variables: BTreeSet<String>,
}

/// How checkouts are made.
#[derive(Clone, Debug)]
pub struct WorkspaceSettings {
    /// Where they are.
    pub root: PathBuf,
    /// Of trusted items.
    pub strategy: Strategy,
    /// Of untrusted items.
    pub untrusted_strategy: Strategy,
    /// Whether a checkout stays when its item closes.
    pub keep_on_close: bool,
    /// The most checkouts at once.
    pub checkouts: u64,
    /// How often store and disk are compared.
    pub reconcile_every: Duration,
}

/// How checkouts go.
#[derive(Clone, Debug)]
pub struct RemovalSettings {
    /// What happens when an item closes.
    pub on_close: OnClose,
    /// What becomes of work at risk in a checkout that is to go, on close or
    /// because somebody asks for the item to be cleaned up.
    pub at_risk: AtRisk,
    /// For how many days archives are kept; 0 is for ever.
    pub archive_days: u64,
}

/// A command that is a session.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Commands, prompt, variables.
    pub spec: ProfileSpec,
    /// The most sessions of this profile at once.
    pub sessions: Option<u32>,
    /// How long one run may take.
    pub timeout: Option<Duration>,
}

impl Settings {
    /// Returns what a configuration asks for.
    ///
    /// # Errors
    ///
    /// Returns [`BadPattern`] for a glob that does not compile; a configuration
    /// that was loaded has none.
    pub fn of(config: &Config) -> Result<Self, BadPattern> {
        let routing = &config.routing;
        let workspace = &routing.workspace;
        Ok(Self {
            policy: policy_of(config)?,
            workspace: workspace.root.clone().map(|root| WorkspaceSettings {
                root,
                strategy: workspace.strategy,
                untrusted_strategy: workspace.untrusted_strategy,
                keep_on_close: workspace.keep_checkout_on_close,
                checkouts: workspace.max_checkouts,
                reconcile_every: Duration::from_mins(workspace.reconcile_minutes.max(1)),
            }),
            removal: RemovalSettings {
                on_close: on_close_of(config),
                at_risk: match workspace.removal.on_dirty {
                    config::OnDirty::Archive => AtRisk::Archive,
                    config::OnDirty::Keep => AtRisk::Keep,
                },
                archive_days: workspace.removal.archive_days,
            },
            spawn_workdir: routing.spawn_workdir.clone(),
            dispatches: routing.max_concurrent_dispatches.max(1),
            attempts: routing.max_attempts,
            default_profile: config.sessions.default.clone(),
            sessions: bounded(config.sessions.max_concurrent),
            kill_grace: config.sessions.kill_grace,
            log_bytes: config.sessions.log_bytes,
            profiles: config
                .sessions
                .profiles
                .iter()
                .map(|(name, profile)| (name.clone(), profile_of(profile)))
                .collect(),
            secret_variables: config.webhooks.github.secret_env.iter().cloned().collect(),
        })
    }
}

/// Returns what a configuration makes of checkouts whose items close.
pub fn on_close_of(config: &Config) -> OnClose {
    let workspace = &config.routing.workspace;
    match workspace.removal.on_dirty {
        _ if workspace.keep_checkout_on_close => OnClose::Stay,
        config::OnDirty::Archive => OnClose::ArchiveWork,
        config::OnDirty::Keep => OnClose::KeepWork,
    }
}

/// Returns the hosts that a configuration serves.
pub fn hosts_of(config: &Config) -> HostPolicy {
    let workspace = &config.routing.workspace;
    HostPolicy {
        default_host: workspace.default_host.clone(),
        clone_protocol: match workspace.clone_protocol {
            config::CloneProtocol::Https => CloneProtocol::Https,
            config::CloneProtocol::Ssh => CloneProtocol::Ssh,
        },
        hosts: workspace
            .hosts
            .iter()
            .map(|(host, entry)| {
                (
                    host.to_lowercase(),
                    HostEntry {
                        clone_url: entry.clone_url.clone(),
                    },
                )
            })
            .collect(),
    }
}

fn policy_of(config: &Config) -> Result<Policy, BadPattern> {
    let routing = &config.routing;
    Ok(Policy {
        hosts: hosts_of(config),
        repositories: patterns(&routing.repositories, Pattern::repository)?,
        label: routing.label.clone(),
        command: routing.command.clone(),
        trust: Trust {
            associations: routing.trust.associations.clone(),
            users: routing.trust.users.clone(),
            bots: routing.trust.bots.clone(),
        },
        rules: routing
            .rules
            .iter()
            .map(rule_of)
            .collect::<Result<_, _>>()?,
    })
}

fn rule_of(rule: &config::RuleConfig) -> Result<Rule, BadPattern> {
    let when = &rule.when;
    Ok(Rule {
        name: rule.name.clone(),
        when: When {
            event: when.event.clone(),
            action: when.action.clone(),
            repository: patterns(&when.repository, Pattern::repository)?,
            label: when.label.clone(),
            author: when.author.clone(),
            association: when.association.clone(),
            fork: when.fork,
            draft: when.draft,
            base: patterns(&when.base, Pattern::branch)?,
            branch: patterns(&when.branch, Pattern::branch)?,
            command: when.command.clone(),
        },
        then: match rule.then {
            config::Then::Start => Then::Start,
            config::Then::Deliver => Then::Deliver,
            config::Then::Close => Then::Close,
            config::Then::Ignore => Then::Ignore,
        },
        profile: rule.profile.clone(),
        strategy: rule.strategy,
    })
}

fn patterns(
    texts: &[String],
    parse: fn(&str) -> Result<Pattern, BadPattern>,
) -> Result<Vec<Pattern>, BadPattern> {
    texts.iter().map(|text| parse(text)).collect()
}

fn profile_of(profile: &config::Profile) -> Profile {
    let text = |template: &Template| PromptText::Text(template.text().to_owned());
    Profile {
        spec: ProfileSpec {
            start: profile.start.clone(),
            resume: profile.resume.clone(),
            prompt: match &profile.prompt {
                Prompt::BuiltIn => None,
                Prompt::Every(template) => Some(PromptSource::Every(text(template))),
                Prompt::ByEvent(by_event) => Some(PromptSource::ByEvent(
                    by_event
                        .iter()
                        .map(|(event, one)| (event.clone(), text(one)))
                        .collect(),
                )),
            },
            env: profile.env.clone(),
            pass_env: profile.pass_env.clone(),
        },
        sessions: profile.max_concurrent.map(bounded),
        timeout: profile.timeout,
    }
}

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
