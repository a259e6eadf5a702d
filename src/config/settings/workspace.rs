//! Where checkouts are, and how they are made and removed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use crate::domain::checkout::Strategy;

/// Where checkouts are, and how they are made and removed. A changed root or
/// strategy concerns new checkouts; old ones keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WorkspaceSettings {
    /// The directory of all checkouts; empty is off: sessions run in `routing.spawnWorkdir` and nothing is cloned.
    #[serde(with = "fields::empty_is_none")]
    #[schemars(with = "String")]
    pub root: Option<PathBuf>,
    /// How checkouts are made: `worktree` shares one clone of the repository, `clone` shares nothing. Another value is a warning and means `worktree`.
    #[schemars(with = "fields::StrategyOrWorktree")]
    pub strategy: Strategy,
    /// The strategy for forks, for heads that are gone and for authors who are not trusted.
    #[schemars(with = "fields::StrategyWord")]
    pub untrusted_strategy: Strategy,
    /// How repositories are reached where `hosts` says nothing else.
    pub clone_protocol: CloneProtocol,
    /// The host of payloads that carry no URL.
    pub default_host: String,
    /// The hosts whose repositories are served besides `defaultHost`, and from where.
    pub hosts: BTreeMap<String, Host>,
    /// Keep checkouts when their item closes.
    pub keep_checkout_on_close: bool,
    /// What a pull request gets whose head cannot be reached: no checkout, or the default branch.
    pub missing_branch: MissingBranch,
    /// The git command, 2.39 or later: a name, looked up in `PATH`, or a path.
    pub git_binary: String,
    /// How long one git command may take.
    #[serde(with = "fields::seconds", rename = "gitTimeoutSeconds")]
    #[schemars(with = "u64", range(min = 1, max = 86_400))]
    pub git_timeout: Duration,
    /// How many checkouts there may be; beyond it preparing fails with `quota`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_checkouts: u64,
    /// How many bytes must stay free on the root's file system; below it preparing fails with `disk_low`.
    #[schemars(range(min = 0, max = 1_125_899_906_842_624_u64))]
    pub min_free_bytes: u64,
    /// How many inodes must stay free there; a file system that counts none is unlimited.
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub min_free_inodes: u64,
    /// How often store, disk and git's records are compared: what is half-made is finished, what is gone is noticed, kept checkouts of closed items are judged again.
    #[schemars(range(min = 1, max = 10_080))]
    pub reconcile_minutes: u64,
    /// What becomes of the work in a checkout that is to go.
    pub removal: Removal,
}

impl Default for WorkspaceSettings {
    fn default() -> Self {
        Self {
            root: None,
            strategy: Strategy::Worktree,
            untrusted_strategy: Strategy::Clone,
            clone_protocol: CloneProtocol::default(),
            default_host: "github.com".into(),
            hosts: BTreeMap::new(),
            keep_checkout_on_close: false,
            missing_branch: MissingBranch::default(),
            git_binary: "git".into(),
            git_timeout: Duration::from_mins(30),
            max_checkouts: 200,
            min_free_bytes: 2_147_483_648,
            min_free_inodes: 50_000,
            reconcile_minutes: 15,
            removal: Removal::default(),
        }
    }
}

/// How repositories are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum CloneProtocol {
    #[default]
    Https,
    Ssh,
}

/// What a pull request gets whose head cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum MissingBranch {
    #[default]
    Fail,
    Default,
}

/// A host whose repositories are served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Host {
    /// The address that git gets, with `{owner}` and `{repo}` in it; scheme `https`, `ssh`, `file`, or `http` on a loopback address. Empty is made from the host and `cloneProtocol`.
    #[serde(with = "fields::empty_is_none")]
    #[schemars(with = "String")]
    pub clone_url: Option<String>,
}

/// What becomes of the work in a checkout that is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Removal {
    /// Ignored files that can be made again, as patterns of gitignore. Any other ignored file is work.
    pub regenerable: Vec<String>,
    /// How many bytes an archive may take; a checkout that would need more is kept.
    #[schemars(range(min = 1, max = 1_125_899_906_842_624_u64))]
    pub archive_max_bytes: u64,
    /// For how many days an archive is kept after it was made and its item last changed; never deleted while the item is open. 0 keeps it until it is purged by hand.
    #[schemars(range(min = 0, max = 36_500))]
    pub archive_days: u64,
    /// What happens to a checkout that is to go while something exists only in it: it is archived and removed, or kept.
    pub on_dirty: OnDirty,
}

/// What happens to a checkout that is to go while something exists only in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum OnDirty {
    #[default]
    Archive,
    Keep,
}

impl Default for Removal {
    fn default() -> Self {
        let regenerable = [
            "node_modules/",
            "target/",
            "build/",
            "dist/",
            ".venv/",
            "venv/",
            "__pycache__/",
            "*.pyc",
            ".pytest_cache/",
            ".mypy_cache/",
            ".ruff_cache/",
            ".tox/",
            ".gradle/",
            ".next/",
            ".turbo/",
            ".cache/",
            "coverage/",
            ".DS_Store",
        ];
        Self {
            regenerable: regenerable.map(str::to_owned).into(),
            archive_max_bytes: 268_435_456,
            archive_days: 30,
            on_dirty: OnDirty::default(),
        }
    }
}
