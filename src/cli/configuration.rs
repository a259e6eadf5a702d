//! Which configuration a command goes by.

use std::path::PathBuf;

use super::Failure;
use crate::config::{self, Environment, Loaded};

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// The configuration file.
    ///
    /// Without it: $INNKEEPER_CONFIG, ./innkeeper.yaml,
    /// $XDG_CONFIG_HOME/innkeeper/innkeeper.yaml, /etc/innkeeper/innkeeper.yaml.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Global {
    /// Returns the configuration file.
    ///
    /// # Errors
    ///
    /// Exit code 2 if none was named and none is in the known places.
    pub fn config_file(&self, env: &Environment) -> Result<PathBuf, Failure> {
        config::discover(self.config.as_deref(), env).ok_or_else(|| {
            let places: Vec<_> = config::candidates(env)
                .iter()
                .map(|path| format!("`{}`", path.display()))
                .collect();
            Failure::usage(anyhow::anyhow!(
                "there is no configuration; looked for {}",
                places.join(", ")
            ))
            .help("write one with `innkeeper init`, or name one with --config")
        })
    }

    /// Loads the configuration.
    ///
    /// # Errors
    ///
    /// Exit code 2, with everything that is wrong.
    pub fn load(&self, env: &Environment) -> Result<Loaded, Failure> {
        let path = self.config_file(env)?;
        config::load(&path, env).map_err(Failure::configuration)
    }
}
