//! The daemon's own log, to standard error: text on a terminal, JSON otherwise.
//!
//! It is for whoever runs the daemon. What happened to work items is told in the
//! event log.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging for the whole process; a second call changes nothing.
pub fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(level);
    let started = if json {
        registry
            .with(fmt::layer().json().with_writer(std::io::stderr))
            .try_init()
    } else {
        let colour = std::io::stderr().is_terminal();
        registry
            .with(fmt::layer().with_ansi(colour).with_writer(std::io::stderr))
            .try_init()
    };
    // Only where a program that embeds the daemon has its own.
    drop(started);
}
