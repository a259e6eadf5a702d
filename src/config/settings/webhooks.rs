//! Listeners for webhooks.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;

/// Listeners for webhooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Webhooks {
    /// Webhooks of GitHub; this listener may face the internet.
    pub github: GithubWebhook,
}

/// Webhooks of GitHub; this listener may face the internet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GithubWebhook {
    /// Whether there is a listener.
    pub enabled: bool,
    /// The address it listens on.
    pub host: String,
    /// The port it listens on; 0 is any free one.
    #[schemars(range(min = 0, max = 65535))]
    pub port: u16,
    /// The path that deliveries are posted to.
    pub path: String,
    /// Names of environment variables that hold a secret each, one or a list: every one of them is accepted, so that a secret can be changed without losing a delivery.
    #[serde(deserialize_with = "fields::one_or_many::deserialize")]
    #[schemars(with = "fields::OneOrMany")]
    pub secret_env: Vec<String>,
    /// Files that hold a secret each; a line break at the end is not part of it.
    #[schemars(with = "Vec<String>")]
    pub secret_files: Vec<PathBuf>,
    /// Accept deliveries without a signature; only on a loopback address.
    pub allow_unsigned: bool,
    /// The largest body; GitHub sends none above 25 MiB.
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub max_body_bytes: usize,
    /// How many bytes of bodies may be in the reading at once; beyond it the answer is 503.
    #[schemars(range(min = 1024, max = 1_099_511_627_776_u64))]
    pub body_budget_bytes: usize,
}

impl Default for GithubWebhook {
    fn default() -> Self {
        Self {
            enabled: true,
            host: "127.0.0.1".into(),
            port: 8787,
            path: "/webhooks/github".into(),
            secret_env: vec!["INNKEEPER_WEBHOOK_SECRET".into()],
            secret_files: Vec::new(),
            allow_unsigned: false,
            max_body_bytes: 26_214_400,
            body_budget_bytes: 67_108_864,
        }
    }
}

impl GithubWebhook {
    /// Returns whether the listener can only be reached from this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}
