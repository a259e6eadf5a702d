//! Issues, and comments, which GitHub sends alike for issues and pull requests.

use serde_json::{Value, json};

use super::repo::{label, labels, reactions};
use super::{CREATED, Payload, Repo, UPDATED, user};

/// An issue at one moment; its methods are the events it can send.
#[derive(Clone, Debug)]
pub struct Issue {
    /// The repository.
    pub repo: Repo,
    /// Number.
    pub number: u64,
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
    /// Whether it is a pull request, described as an issue.
    pub pull_request: bool,
}

impl Issue {
    /// Returns a member's open issue.
    pub fn new(repo: &Repo, number: u64) -> Self {
        Self {
            repo: repo.clone(),
            number,
            author: "alice".into(),
            association: "MEMBER".into(),
            sender: None,
            labels: vec![],
            title: format!("Wish number {number}"),
            body: "Rooms should have keys.".into(),
            pull_request: false,
        }
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

    /// `opened`
    pub fn opened(&self) -> Payload {
        self.event("opened", true, json!({}))
    }

    /// `closed`
    pub fn closed(&self) -> Payload {
        self.event("closed", false, json!({}))
    }

    /// `reopened`
    pub fn reopened(&self) -> Payload {
        self.event("reopened", true, json!({}))
    }

    /// `labeled` with a label, which is on the item then.
    pub fn labeled(&self, name: &str) -> Payload {
        let labelled = self.clone().label(name);
        labelled.event("labeled", true, json!({ "label": label(&self.repo, name) }))
    }

    /// Any action, with fields of its own beside the usual ones.
    pub fn event(&self, action: &str, open: bool, mut extra: Value) -> Payload {
        extra["issue"] = self.value(open);
        let sender = self.sender.as_deref().unwrap_or(&self.author);
        Payload::new("issues", self.repo.frame(Some(action), sender, extra))
    }

    /// `issue_comment` `created`.
    pub fn commented(&self, author: &str, association: &str, text: &str) -> Payload {
        let issue_api = format!("{}/issues/{}", self.repo.api(), self.number);
        let comment = json!({
            "url": format!("{}/issues/comments/70000001", self.repo.api()),
            "html_url": format!("{}#issuecomment-70000001", self.html()),
            "issue_url": issue_api,
            "id": 70_000_001,
            "node_id": "IC_kwDOA",
            "user": user(author, &self.repo.host),
            "created_at": UPDATED,
            "updated_at": UPDATED,
            "author_association": association,
            "body": text,
            "reactions": reactions(&issue_api),
            "performed_via_github_app": null
        });
        let body = json!({ "issue": self.value(true), "comment": comment });
        Payload::new(
            "issue_comment",
            self.repo.frame(Some("created"), author, body),
        )
    }

    fn html(&self) -> String {
        let kind = if self.pull_request { "pull" } else { "issues" };
        format!("{}/{kind}/{}", self.repo.html(), self.number)
    }

    fn value(&self, open: bool) -> Value {
        let (html, repo) = (self.html(), &self.repo);
        let api = format!("{}/issues/{}", repo.api(), self.number);
        let mut value = json!({
            "url": api,
            "repository_url": repo.api(),
            "labels_url": format!("{api}/labels{{/name}}"),
            "comments_url": format!("{api}/comments"),
            "events_url": format!("{api}/events"),
            "html_url": html,
            "id": 1_000_000_000 + self.number,
            "node_id": "I_kwDOA",
            "number": self.number,
            "title": self.title,
            "user": user(&self.author, &repo.host),
            "labels": labels(repo, &self.labels),
            "state": if open { "open" } else { "closed" },
            "locked": false,
            "assignee": null,
            "assignees": [],
            "milestone": null,
            "comments": 1,
            "created_at": CREATED,
            "updated_at": UPDATED,
            "closed_at": if open { Value::Null } else { json!(UPDATED) },
            "author_association": self.association,
            "type": null,
            "sub_issues_summary": { "total": 0, "completed": 0, "percent_completed": 0 },
            "active_lock_reason": null,
            "body": self.body,
            "reactions": reactions(&api),
            "timeline_url": format!("{api}/timeline"),
            "performed_via_github_app": null,
            "state_reason": if open { Value::Null } else { json!("completed") }
        });
        if self.pull_request {
            value["draft"] = json!(false);
            value["pull_request"] = json!({
                "url": format!("{}/pulls/{}", repo.api(), self.number),
                "html_url": html,
                "diff_url": format!("{html}.diff"),
                "patch_url": format!("{html}.patch"),
                "merged_at": null
            });
        }
        value
    }
}
