//! Commands in comments: `/innkeeper start` as the first line.

/// What a person can ask for in a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandName {
    /// Prepare and start.
    Start,
    /// End the session, keep the checkout, disarm.
    Stop,
    /// Drop later events.
    Pause,
    /// Take events again.
    Resume,
    /// Say how things stand.
    Status,
    /// End the item.
    Cleanup,
}

impl CommandName {
    /// Every command.
    pub const ALL: &'static [Self] = &[
        Self::Start,
        Self::Stop,
        Self::Pause,
        Self::Resume,
        Self::Status,
        Self::Cleanup,
    ];

    /// Returns the command's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Status => "status",
            Self::Cleanup => "cleanup",
        }
    }
}

/// A command, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is asked for.
    pub name: CommandName,
    /// The rest of the line.
    pub rest: String,
}

/// Returns the command that a comment gives: its first line begins with the
/// command word, as a whole word, and then the name of a command.
pub fn parse_command(body: &str, command_word: &str) -> Option<Command> {
    let (word, rest) = command_words(body, command_word)?;
    let name = CommandName::ALL
        .iter()
        .copied()
        .find(|name| name.as_str() == word)?;
    Some(Command {
        name,
        rest: rest.to_owned(),
    })
}

/// Returns the word behind the command word, and the rest of the line. A rule
/// may ask for words that are no command of Innkeeper's own.
///
/// Only the first line counts, and only at its very beginning: a quoted or
/// indented command is somebody talking about it.
pub fn command_words<'b>(body: &'b str, command_word: &str) -> Option<(&'b str, &'b str)> {
    if command_word.is_empty() {
        return None;
    }
    let line = body.lines().next()?;
    let after = line.strip_prefix(command_word)?;
    if !after.starts_with([' ', '\t']) {
        return None;
    }
    let after = after.trim();
    let (word, rest) = after.split_once([' ', '\t']).unwrap_or((after, ""));
    (!word.is_empty()).then_some((word, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_alone_gives_a_command() {
        for name in CommandName::ALL {
            let body = format!("/innkeeper {}\r\n/innkeeper other", name.as_str());
            let command = parse_command(&body, "/innkeeper").expect("a command");
            assert_eq!((command.name, command.rest.as_str()), (*name, ""));
        }
        let command = parse_command("/innkeeper \t start  with care \nx", "/innkeeper");
        assert_eq!(command.expect("a command").rest, "with care");
        assert!(parse_command("!bot start", "!bot").is_some());
    }

    #[test]
    fn talk_about_a_command_is_no_command() {
        for body in [
            "",
            "/innkeeper",
            "/innkeeper ",
            "/innkeeper\nstart",
            "hello\n/innkeeper start",
            "/innkeepers start",
            "/innkeeperstart",
            "> /innkeeper start",
            " /innkeeper start",
            "`/innkeeper start`",
            "\n/innkeeper start",
            "/Innkeeper start",
            "/innkeeper Start",
            "/innkeeper starting",
            "/innkeeper start;stop",
            "/innkeeper $(touch x)",
        ] {
            assert_eq!(parse_command(body, "/innkeeper"), None, "{body:?}");
        }
        assert_eq!(parse_command(" start", ""), None);
    }
}
