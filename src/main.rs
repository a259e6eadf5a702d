//! The `innkeeper` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a launcher is small, has no runtime, and lives long.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == innkeeper::session::launcher::ARGUMENT)
    {
        return innkeeper::session::launcher::main(arguments);
    }
    innkeeper::cli::main()
}
