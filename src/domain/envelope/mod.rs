//! What a delivery says, reduced to the fields that Innkeeper uses.
//!
//! [`parse()`] understands every authentic payload: a field that is absent, or of
//! another type than it used to be, is a field that says nothing. What has no
//! number or no repository has no item. Only a body that is no JSON object is
//! [`NotUnderstood`].
//!
//! Nothing here judges names: whether a host is served, a name safe, or an actor
//! trusted is for [`super::repo_target`] and [`super::routing`] to say.

mod command;
mod fields;
mod form;
mod item;
mod parse;

use serde::{Deserialize, Serialize};

pub use command::{Command, CommandName, command_words, parse_command};
pub use parse::{ContentType, NotUnderstood, handled, parse};

use super::work_item::{ItemKind, ItemName};

/// A person or a program, as the payload names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Login name.
    pub login: String,
    /// Whether the forge says that it is a bot.
    pub bot: bool,
}

/// The head of a pull request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Commit.
    pub sha: Option<String>,
    /// Branch.
    pub branch: Option<String>,
    /// Whether the head is in another repository, or its repository is gone.
    pub fork: bool,
    /// Whether the head's repository is gone.
    pub repository_gone: bool,
}

/// A comment or a review that somebody wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    /// Id of the comment or review.
    pub id: Option<u64>,
    /// Its text.
    pub body: String,
    /// Its author.
    pub author: Option<Actor>,
    /// The author's association with the repository, upper case.
    pub association: Option<String>,
    /// Address for people.
    pub url: Option<String>,
}

/// The issue or pull request that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemState {
    /// Identity and name.
    pub name: ItemName,
    /// Issue or pull request.
    pub kind: ItemKind,
    /// Title.
    pub title: String,
    /// Body.
    pub body: String,
    /// Address for people.
    pub url: Option<String>,
    /// Who opened it.
    pub author: Option<Actor>,
    /// The opener's association with the repository, upper case.
    pub association: Option<String>,
    /// Whether the payload says that it is open; none if it does not say.
    pub open: Option<bool>,
    /// Labels on it.
    pub labels: Vec<String>,
    /// Whether it is a draft.
    pub draft: bool,
    /// Whether it was merged; none if the payload does not say.
    pub merged: Option<bool>,
    /// Head; none for issues, and for comments on pull requests, whose payload lacks it.
    pub head: Option<Head>,
    /// Base branch.
    pub base: Option<String>,
}

/// A delivery, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// `X-GitHub-Event`.
    pub event: String,
    /// `action`.
    pub action: Option<String>,
    /// `owner/name` of the repository.
    pub repository: Option<String>,
    /// Who caused it.
    pub sender: Option<Actor>,
    /// The item, if it is about one.
    pub item: Option<ItemState>,
    /// The comment or review, if it is about one.
    pub comment: Option<Comment>,
    /// `label.name` of `labeled` and `unlabeled`.
    pub label: Option<String>,
    /// `before` and `after` of a `synchronize`.
    pub before: Option<String>,
    /// See `before`.
    pub after: Option<String>,
    /// A URL of the repository in the payload that names another host than the
    /// item's, cut and printable; it is not used, and worth a line in the log.
    #[serde(default)]
    pub url_mismatch: Option<String>,
}
