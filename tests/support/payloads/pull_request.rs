//! Pull requests, with the reviews and comments on them.

use serde_json::{Value, json};

use super::repo::{joined, label, labels, reactions};
use super::{CREATED, Issue, Payload, Repo, UPDATED, user};

/// Where a pull request's head is.
#[derive(Clone, Debug)]
pub enum HeadRepo {
    /// In the repository itself.
    Own,
    /// In a fork.
    Fork(Repo),
    /// In a fork that is gone: `head.repo` is null.
    Gone {
        /// Whose fork it was.
        owner: String,
    },
}

/// A pull request at one moment; its methods are the events it can send.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The repository that it is made against.
    pub repo: Repo,
    /// Number.
    pub number: u64,
    /// Head commit.
    pub head_sha: String,
    /// Head branch.
    pub head_ref: String,
    /// Where the head is.
    pub head_repo: HeadRepo,
    /// Base branch.
    pub base_ref: String,
    /// Base commit.
    pub base_sha: String,
    /// Who opened it.
    pub author: String,
    /// The opener's association.
    pub association: String,
    /// Who causes the events; the author unless it is set.
    pub sender: Option<String>,
    /// Labels.
    pub labels: Vec<String>,
    /// Title.
    pub title: String,
    /// Body.
    pub body: String,
    /// Whether it is a draft.
    pub draft: bool,
}

impl PullRequest {
    /// Returns a member's open pull request of a branch of the repository itself.
    pub fn new(repo: &Repo, number: u64, head_sha: &str) -> Self {
        Self {
            repo: repo.clone(),
            number,
            head_sha: head_sha.into(),
            head_ref: format!("feature/{number}"),
            head_repo: HeadRepo::Own,
            base_ref: repo.default_branch.clone(),
            base_sha: "b".repeat(40),
            author: "alice".into(),
            association: "MEMBER".into(),
            sender: None,
            labels: vec![],
            title: format!("Change number {number}"),
            body: "What it changes, and why.\r\n\r\n```rust\nfn main() {}\n```\r\n".into(),
            draft: false,
        }
    }

    /// Sets the head's branch.
    #[must_use]
    pub fn branch(mut self, branch: &str) -> Self {
        self.head_ref = branch.into();
        self
    }

    /// Sets the head's commit.
    #[must_use]
    pub fn at(mut self, head_sha: &str) -> Self {
        self.head_sha = head_sha.into();
        self
    }

    /// Sets the base's branch.
    #[must_use]
    pub fn onto(mut self, base: &str) -> Self {
        self.base_ref = base.into();
        self
    }

    /// Sets author and association.
    #[must_use]
    pub fn by(mut self, author: &str, association: &str) -> Self {
        self.author = author.into();
        self.association = association.into();
        self
    }

    /// Sets who causes the events.
    #[must_use]
    pub fn sent_by(mut self, sender: &str) -> Self {
        self.sender = Some(sender.into());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.labels.push(label.into());
        self
    }

    /// Makes it a draft.
    #[must_use]
    pub fn draft(mut self) -> Self {
        self.draft = true;
        self
    }

    /// Puts its head into a fork.
    #[must_use]
    pub fn of_fork(mut self, owner: &str) -> Self {
        self.head_repo = HeadRepo::Fork(self.repo.forked_by(owner, self.repo.id + 100_000));
        self
    }

    /// Puts its head into a fork that is gone.
    #[must_use]
    pub fn of_deleted_fork(mut self, owner: &str) -> Self {
        self.head_repo = HeadRepo::Gone {
            owner: owner.into(),
        };
        self
    }

    /// `opened`
    pub fn opened(&self) -> Payload {
        self.event("opened", true, false, json!({}))
    }

    /// `reopened`
    pub fn reopened(&self) -> Payload {
        self.event("reopened", true, false, json!({}))
    }

    /// `ready_for_review`
    pub fn ready_for_review(&self) -> Payload {
        self.event("ready_for_review", true, false, json!({}))
    }

    /// `synchronize` to the head's commit, from `before`.
    pub fn synchronize(&self, before: &str) -> Payload {
        let extra = json!({ "before": before, "after": self.head_sha });
        self.event("synchronize", true, false, extra)
    }

    /// `edited`: title and body.
    pub fn edited(&self) -> Payload {
        let extra =
            json!({ "changes": { "title": { "from": "An older title" }, "body": { "from": "" } } });
        self.event("edited", true, false, extra)
    }

    /// `labeled` with a label, which is on the item then.
    pub fn labeled(&self, name: &str) -> Payload {
        let labelled = self.clone().label(name);
        labelled.event(
            "labeled",
            true,
            false,
            json!({ "label": label(&self.repo, name) }),
        )
    }

    /// `unlabeled`
    pub fn unlabeled(&self, name: &str) -> Payload {
        let mut without = self.clone();
        without.labels.retain(|one| one != name);
        without.event(
            "unlabeled",
            true,
            false,
            json!({ "label": label(&self.repo, name) }),
        )
    }

    /// `closed`, merged.
    pub fn closed_merged(&self) -> Payload {
        self.event("closed", false, true, json!({}))
    }

    /// `closed`, not merged.
    pub fn closed_unmerged(&self) -> Payload {
        self.event("closed", false, false, json!({}))
    }

    /// Any action, with fields of its own beside the usual ones.
    pub fn event(&self, action: &str, open: bool, merged: bool, mut extra: Value) -> Payload {
        extra["number"] = json!(self.number);
        extra["pull_request"] = self.value(open, merged);
        let sender = self.sender.as_deref().unwrap_or(&self.author);
        Payload::new("pull_request", self.repo.frame(Some(action), sender, extra))
    }

    /// `issue_comment` `created`: what GitHub sends for a comment on it. The
    /// payload names no head.
    pub fn commented(&self, author: &str, association: &str, body: &str) -> Payload {
        let issue = Issue {
            repo: self.repo.clone(),
            number: self.number,
            author: self.author.clone(),
            association: self.association.clone(),
            sender: None,
            labels: self.labels.clone(),
            title: self.title.clone(),
            body: self.body.clone(),
            pull_request: true,
        };
        issue.commented(author, association, body)
    }

    /// `pull_request_review` `submitted`.
    pub fn reviewed(&self, author: &str, association: &str, body: &str) -> Payload {
        let (html, api) = (self.html(), self.api());
        let review = json!({
            "id": 80_000_000 + self.number,
            "node_id": "PRR_kwDOA",
            "user": user(author, &self.repo.host),
            "body": body,
            "commit_id": self.head_sha,
            "submitted_at": UPDATED,
            "state": "commented",
            "html_url": format!("{html}#pullrequestreview-80000000"),
            "pull_request_url": api,
            "author_association": association,
            "updated_at": UPDATED,
            "_links": { "html": { "href": format!("{html}#pullrequestreview-80000000") }, "pull_request": { "href": api } }
        });
        let body = json!({ "review": review, "pull_request": self.simple_value() });
        Payload::new(
            "pull_request_review",
            self.repo.frame(Some("submitted"), author, body),
        )
    }

    /// `pull_request_review_comment` `created`.
    pub fn review_commented(&self, author: &str, association: &str, body: &str) -> Payload {
        let (html, api) = (self.html(), self.api());
        let comment = json!({
            "url": format!("{}/pulls/comments/90000001", self.repo.api()),
            "pull_request_review_id": 80_000_000 + self.number,
            "id": 90_000_001,
            "node_id": "PRRC_kwDOA",
            "diff_hunk": "@@ -1,3 +1,4 @@\n fn main() {\n+    rooms();\n }",
            "path": "src/main.rs",
            "commit_id": self.head_sha,
            "original_commit_id": self.head_sha,
            "user": user(author, &self.repo.host),
            "body": body,
            "created_at": UPDATED,
            "updated_at": UPDATED,
            "html_url": format!("{html}#discussion_r90000001"),
            "pull_request_url": api,
            "author_association": association,
            "_links": {
                "self": { "href": format!("{}/pulls/comments/90000001", self.repo.api()) },
                "html": { "href": format!("{html}#discussion_r90000001") },
                "pull_request": { "href": api }
            },
            "reactions": reactions(&api),
            "start_line": null,
            "original_start_line": null,
            "start_side": null,
            "line": 2,
            "original_line": 2,
            "side": "RIGHT",
            "original_position": 2,
            "position": 2,
            "subject_type": "line"
        });
        let body = json!({ "comment": comment, "pull_request": self.simple_value() });
        Payload::new(
            "pull_request_review_comment",
            self.repo.frame(Some("created"), author, body),
        )
    }

    fn html(&self) -> String {
        format!("{}/pull/{}", self.repo.html(), self.number)
    }

    fn api(&self) -> String {
        format!("{}/pulls/{}", self.repo.api(), self.number)
    }

    /// Returns the shorter object that reviews carry: it has no `merged`.
    fn simple_value(&self) -> Value {
        let mut value = self.value(true, false);
        let fields = value.as_object_mut().expect("a pull request is an object");
        for key in [
            "merged",
            "mergeable",
            "rebaseable",
            "mergeable_state",
            "merged_by",
            "comments",
            "review_comments",
            "maintainer_can_modify",
            "commits",
            "additions",
            "deletions",
            "changed_files",
        ] {
            fields.remove(key);
        }
        value
    }

    fn value(&self, open: bool, merged: bool) -> Value {
        let (html, api, repo) = (self.html(), self.api(), &self.repo);
        let issue_api = format!("{}/issues/{}", repo.api(), self.number);
        let (head_owner, head_repo) = match &self.head_repo {
            HeadRepo::Own => (repo.owner.clone(), repo.value()),
            HeadRepo::Fork(fork) => (fork.owner.clone(), fork.value()),
            HeadRepo::Gone { owner } => (owner.clone(), Value::Null),
        };
        let head_user = match &self.head_repo {
            HeadRepo::Gone { .. } => Value::Null,
            HeadRepo::Own | HeadRepo::Fork(_) => user(&head_owner, &repo.host),
        };
        let closed_at = if open { Value::Null } else { json!(UPDATED) };
        let (merged_at, merged_by) = if merged {
            (json!(UPDATED), user("maintainer", &repo.host))
        } else {
            (Value::Null, Value::Null)
        };
        let links = json!({
            "self": { "href": api },
            "html": { "href": html },
            "issue": { "href": issue_api },
            "comments": { "href": format!("{issue_api}/comments") },
            "review_comments": { "href": format!("{api}/comments") },
            "review_comment": { "href": format!("{}/pulls/comments{{/number}}", repo.api()) },
            "commits": { "href": format!("{api}/commits") },
            "statuses": { "href": format!("{}/statuses/{}", repo.api(), self.head_sha) }
        });
        let value = json!({
            "url": api,
            "id": 2_000_000_000 + self.number,
            "node_id": "PR_kwDOA",
            "html_url": html,
            "diff_url": format!("{html}.diff"),
            "patch_url": format!("{html}.patch"),
            "issue_url": issue_api,
            "number": self.number,
            "state": if open { "open" } else { "closed" },
            "locked": false,
            "title": self.title,
            "user": user(&self.author, &repo.host),
            "body": self.body,
            "created_at": CREATED,
            "updated_at": UPDATED,
            "closed_at": closed_at,
            "merged_at": merged_at,
            "merge_commit_sha": "c".repeat(40),
            "assignee": null,
            "assignees": [],
            "requested_reviewers": [user("rev", &repo.host)],
            "requested_teams": [],
            "labels": labels(repo, &self.labels),
            "milestone": null,
            "draft": self.draft,
            "commits_url": format!("{api}/commits"),
            "review_comments_url": format!("{api}/comments"),
            "review_comment_url": format!("{}/pulls/comments{{/number}}", repo.api()),
            "comments_url": format!("{issue_api}/comments"),
            "statuses_url": format!("{}/statuses/{}", repo.api(), self.head_sha),
            "head": {
                "label": format!("{head_owner}:{}", self.head_ref),
                "ref": self.head_ref,
                "sha": self.head_sha,
                "user": head_user,
                "repo": head_repo
            },
            "base": {
                "label": format!("{}:{}", repo.owner, self.base_ref),
                "ref": self.base_ref,
                "sha": self.base_sha,
                "user": user(&repo.owner, &repo.host),
                "repo": repo.value()
            },
        });
        let outcome = json!({
            "_links": links,
            "author_association": self.association,
            "auto_merge": null,
            "active_lock_reason": null,
            "merged": merged,
            "mergeable": null,
            "rebaseable": null,
            "mergeable_state": "unknown",
            "merged_by": merged_by,
            "comments": 0,
            "review_comments": 0,
            "maintainer_can_modify": matches!(self.head_repo, HeadRepo::Fork(_)),
            "commits": 2,
            "additions": 42,
            "deletions": 7,
            "changed_files": 3
        });
        joined(value, &outcome)
    }
}
