//! The command line: commands, tables, exit codes. Nothing else prints.
//!
//! # What this module promises
//!
//! 1. Answers go to standard output, everything else to standard error.
//! 2. Exit codes: 0 done; 1 the answer is no, or it failed; 2 wrong usage or
//!    configuration; 3 the daemon is not reachable.
//! 3. A reader that goes away early (`| head`) ends a command quietly.
//! 4. What a stranger wrote (titles, paths, branches) cannot steer the terminal.

mod archive;
mod client;
mod completions;
mod config;
mod configuration;
mod deliveries;
pub mod demo;
mod doctor;
mod events;
mod exit;
mod explain;
mod failure;
mod gc;
mod init;
mod item;
mod list;
mod moment;
mod output;
mod prepare;
mod progress;
mod reference;
pub mod serve;
mod session;
mod show;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use configuration::Global;
pub use failure::Failure;
pub use output::Output;

const AFTER_HELP: &str = "\
A REF names a work item: owner/repo#15, github:owner/repo#15, the address of the issue or \
pull request, or its slug.

Exit codes: 0 done; 1 the answer is no, or it failed; 2 wrong usage or configuration; \
3 the daemon is not reachable.

First steps:
  innkeeper demo             see the whole life of a pull request, with nothing configured
  innkeeper init             write a configuration and make a webhook secret
  innkeeper doctor           check that everything is in place
  innkeeper serve            run the daemon";

/// Checks coding agents in and out of git checkouts, driven by GitHub webhooks.
#[derive(Debug, Parser)]
#[command(
    name = "innkeeper",
    version,
    after_help = AFTER_HELP,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    infer_long_args = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon.
    ///
    /// It is ready when it prints what it listens on. SIGTERM stops the intake and
    /// finishes what runs, at most for 30 seconds; sessions live on. A second one
    /// stops at once. SIGHUP reads the configuration again.
    Serve(serve::Arguments),
    /// Show the whole life of a pull request on this machine, with nothing configured.
    Demo(demo::Arguments),
    /// Write a configuration, make a webhook secret, and say how to create the webhook.
    Init(init::Arguments),
    /// Check the configuration, show it, or print its schema.
    #[command(subcommand)]
    Config(config::Command),
    /// Check that everything is in place, and say how to put right what is not.
    Doctor(doctor::Arguments),
    /// Show how the daemon is: health, counts, lag of the intake, disk.
    Status(status::Arguments),
    /// Prepare a checkout by hand and print its path; starts nothing.
    Prepare(prepare::Arguments),
    /// List the checkouts with state, session, age and what is in them.
    List(list::Arguments),
    /// Show a work item with its checkout, its session and its last deliveries.
    Show(show::Arguments),
    /// Say whether a checkout could be removed now, and why not, probe by probe.
    Explain(explain::Arguments),
    /// Leave a checkout, or remove it without losing what is in it.
    Exit(exit::Arguments),
    /// Steer a work item, as the commands in comments do.
    #[command(subcommand)]
    Item(item::Command),
    /// Look at what removed checkouts held, and bring it back.
    #[command(subcommand)]
    Archive(archive::Command),
    /// Look at sessions, read their output, end them.
    #[command(subcommand)]
    Session(session::Command),
    /// Look at what was delivered, and take it up afresh.
    #[command(subcommand)]
    Deliveries(deliveries::Command),
    /// Read the event log: what happened, and why.
    Events(events::Arguments),
    /// Give back what nobody needs below the workspace root, and say why the rest stays.
    Gc(gc::Arguments),
    /// Print the completions for a shell.
    Completions(completions::Arguments),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output, whose reader may be gone.
            let _gone = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Serve(arguments) => serve::run(&global, arguments),
        Command::Demo(arguments) => demo::run(&global, arguments),
        Command::Init(arguments) => init::run(&global, &arguments),
        Command::Config(command) => config::run(&global, &command),
        Command::Doctor(arguments) => doctor::run(&global, &arguments),
        Command::Status(arguments) => status::run(&global, &arguments),
        Command::Prepare(arguments) => prepare::run(&global, arguments),
        Command::List(arguments) => list::run(&global, &arguments),
        Command::Show(arguments) => show::run(&global, &arguments),
        Command::Explain(arguments) => explain::run(&global, &arguments),
        Command::Exit(arguments) => exit::run(&global, &arguments),
        Command::Item(command) => item::run(&global, command),
        Command::Archive(command) => archive::run(&global, command),
        Command::Session(command) => session::run(&global, command),
        Command::Deliveries(command) => deliveries::run(&global, command),
        Command::Events(arguments) => events::run(&global, arguments),
        Command::Gc(arguments) => gc::run(&global, &arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Format {
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_free_of_contradictions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_flag_says_what_it_does() {
        fn check(command: &clap::Command, path: &str) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{path}: {} says nothing",
                    argument.get_id()
                );
            }
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} says nothing");
                check(sub, &path);
            }
        }
        check(&Cli::command(), "innkeeper");
    }
}
