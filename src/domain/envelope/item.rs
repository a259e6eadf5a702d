//! The parts of a payload: repository, item, head, comment, actor.

use super::fields::Field;
use super::{Actor, Comment, Head, ItemState};
use crate::domain::repo_target::{HostPolicy, bare_host, parse_url, shown};
use crate::domain::work_item::{Forge, ItemKind, ItemName};

/// GitHub allows a hundred labels on an item.
const LABELS_MAX: usize = 100;

/// The repository that a payload names.
pub(super) struct Repository {
    host: String,
    owner: String,
    name: String,
    id: Option<u64>,
    /// See [`super::Envelope::url_mismatch`].
    pub(super) url_mismatch: Option<String>,
}

impl Repository {
    /// Reads `repository`; none if it has no name.
    pub(super) fn read(field: Field<'_>, hosts: &HostPolicy) -> Option<Self> {
        let [id, full_name, name, owner, clone_url, ssh_url, html_url] = field.fields([
            "id",
            "full_name",
            "name",
            "owner",
            "clone_url",
            "ssh_url",
            "html_url",
        ]);
        let [login] = owner.fields(["login"]);
        let urls: Vec<String> = [clone_url, ssh_url, html_url]
            .into_iter()
            .filter_map(Field::name)
            .collect();
        let targets = || urls.iter().filter_map(|url| parse_url(url));
        let (owner, name) = full_name
            .name()
            .and_then(|full| {
                let (owner, name) = full.split_once('/')?;
                Some((owner.to_owned(), name.to_owned()))
            })
            .or_else(|| Some((login.name()?, name.name()?)))
            .or_else(|| targets().next().map(|found| (found.owner, found.repo)))?;
        let host = targets()
            .map(|found| found.host)
            .find(|host| hosts.is_served(host))
            .or_else(|| targets().next().map(|found| found.host))
            .unwrap_or_else(|| hosts.default_host.to_ascii_lowercase());
        // Ports differ lawfully: SSH has one of its own.
        let url_mismatch = urls
            .iter()
            .find(|url| {
                parse_url(url).is_none_or(|found| bare_host(&found.host) != bare_host(&host))
            })
            .map(|url| shown(url));
        Some(Self {
            host,
            owner,
            name,
            id: id.number(),
            url_mismatch,
        })
    }

    /// Returns `owner/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

/// Reads `issue` or `pull_request`; none without a number or a repository.
pub(super) fn item_of(
    field: Field<'_>,
    kind: ItemKind,
    repository: Option<&Repository>,
) -> Option<ItemState> {
    let [
        number,
        title,
        body,
        html_url,
        user,
        association,
        state,
        labels,
        draft,
        merged,
        merged_at,
        head,
        base,
        as_pull_request,
    ] = field.fields([
        "number",
        "title",
        "body",
        "html_url",
        "user",
        "author_association",
        "state",
        "labels",
        "draft",
        "merged",
        "merged_at",
        "head",
        "base",
        "pull_request",
    ]);
    let repository = repository?;
    let number = number.number().filter(|number| *number > 0)?;
    // GitHub calls a pull request an issue when somebody comments on it.
    let commented = kind == ItemKind::Issue && as_pull_request.is_object();
    let kind = if commented {
        ItemKind::PullRequest
    } else {
        kind
    };
    let [commented_merged_at] = as_pull_request.fields(["merged_at"]);
    let merged = match kind {
        ItemKind::Issue => None,
        ItemKind::PullRequest => merged
            .flag()
            .or_else(|| was_merged(merged_at))
            .or_else(|| was_merged(commented_merged_at)),
    };
    let [base_ref, base_repo] = base.fields(["ref", "repo"]);
    Some(ItemState {
        name: ItemName {
            forge: Forge::Github,
            host: repository.host.clone(),
            owner: repository.owner.clone(),
            repo: repository.name.clone(),
            repo_id: repository.id,
            number,
        },
        kind,
        title: title.text().unwrap_or_default(),
        body: body.text().unwrap_or_default(),
        url: html_url.name(),
        author: actor(user),
        association: upper(association),
        open: match state.text().as_deref() {
            Some("open") => Some(true),
            Some("closed") => Some(false),
            _ => None,
        },
        labels: labels
            .elements(LABELS_MAX)
            .into_iter()
            .filter_map(|label| {
                let [name] = label.fields(["name"]);
                name.name().or_else(|| label.name())
            })
            .collect(),
        draft: draft.flag().unwrap_or(false),
        merged,
        head: head
            .is_object()
            .then(|| head_of(head, base_repo, repository)),
        base: base_ref.name(),
    })
}

/// Reads `merged_at`: a time if it was merged, null if not.
fn was_merged(at: Field<'_>) -> Option<bool> {
    if at.is_null() {
        Some(false)
    } else {
        at.name().map(|_| true)
    }
}

fn head_of(head: Field<'_>, base_repo: Field<'_>, repository: &Repository) -> Head {
    let [sha, branch, repo] = head.fields(["sha", "ref", "repo"]);
    let [id, full_name] = repo.fields(["id", "full_name"]);
    let [base_id] = base_repo.fields(["id"]);
    // Without proof that the head is this repository's own it counts as
    // somebody else's, which is the careful way round.
    let own = match (id.number(), repository.id.or_else(|| base_id.number())) {
        (Some(head), Some(base)) => head == base,
        _ => full_name
            .name()
            .is_some_and(|name| name.eq_ignore_ascii_case(&repository.full_name())),
    };
    Head {
        sha: sha.name(),
        branch: branch.name(),
        fork: !own,
        repository_gone: repo.is_null(),
    }
}

/// Reads `comment` or `review`.
pub(super) fn comment_of(field: Field<'_>) -> Option<Comment> {
    if !field.is_object() {
        return None;
    }
    let [id, body, user, association, html_url] =
        field.fields(["id", "body", "user", "author_association", "html_url"]);
    Some(Comment {
        id: id.number(),
        body: body.text().unwrap_or_default(),
        author: actor(user),
        association: upper(association),
        url: html_url.name(),
    })
}

/// Reads `sender` or `user`; none without a login.
pub(super) fn actor(field: Field<'_>) -> Option<Actor> {
    let [login, kind] = field.fields(["login", "type"]);
    let login = login.name()?;
    // People cannot have brackets in their login.
    let bot = kind.text().as_deref() == Some("Bot") || login.ends_with("[bot]");
    Some(Actor { login, bot })
}

fn upper(field: Field<'_>) -> Option<String> {
    field.name().map(|text| text.to_ascii_uppercase())
}
