//! Events that are about no work item.

use serde_json::{Value, json};

use super::repo::organization;
use super::{CREATED, Payload, Repo, UPDATED, user};

fn hook(kind: &str) -> Value {
    json!({
        "zen": "Practicality beats purity.",
        "hook_id": 333_222_111,
        "hook": {
            "type": kind,
            "id": 333_222_111,
            "name": "web",
            "active": true,
            "events": ["issue_comment", "issues", "pull_request"],
            "config": { "content_type": "json", "insecure_ssl": "0", "secret": "********", "url": "https://inn.example/webhooks/github" },
            "updated_at": UPDATED,
            "created_at": CREATED,
            "last_response": { "code": null, "status": "unused", "message": null }
        }
    })
}

/// `ping` of a repository's hook.
pub fn ping_of_repository(repo: &Repo) -> Payload {
    let mut body = hook("Repository");
    body["repository"] = repo.value();
    body["sender"] = user("alice", &repo.host);
    Payload::new("ping", body)
}

/// `ping` of an organisation's hook.
pub fn ping_of_organization(login: &str) -> Payload {
    let mut body = hook("Organization");
    body["organization"] = organization(login, "https://api.github.com");
    body["sender"] = user("alice", "github.com");
    Payload::new("ping", body)
}

/// `ping` of an App's hook, which names neither.
pub fn ping_of_app() -> Payload {
    Payload::new("ping", hook("App"))
}

/// `push` of one commit to a branch.
pub fn push(repo: &Repo, branch: &str, before: &str, after: &str) -> Payload {
    let commit = json!({
        "id": after,
        "tree_id": "d".repeat(40),
        "distinct": true,
        "message": "Change a room",
        "timestamp": UPDATED,
        "url": format!("{}/commit/{after}", repo.html()),
        "author": { "name": "Alice", "email": "alice@example.com", "username": "alice" },
        "committer": { "name": "Alice", "email": "alice@example.com", "username": "alice" },
        "added": [],
        "removed": [],
        "modified": ["src/main.rs"]
    });
    let body = json!({
        "ref": format!("refs/heads/{branch}"),
        "before": before,
        "after": after,
        "created": false,
        "deleted": false,
        "forced": false,
        "base_ref": null,
        "compare": format!("{}/compare/{before}...{after}", repo.html()),
        "commits": [commit],
        "head_commit": commit,
        "pusher": { "name": "alice", "email": "alice@example.com" }
    });
    Payload::new("push", repo.frame(None, "alice", body))
}

/// An event that no version of anything knows.
pub fn unknown_event(repo: &Repo) -> Payload {
    let body = json!({ "teapot": { "short": true, "stout": [1, 2.5, null] } });
    Payload::new("teapot", repo.frame(Some("whistled"), "alice", body))
}

/// `check_suite` `completed` as forks get it: `pull_requests` is empty.
pub fn check_suite(repo: &Repo, head_sha: &str, branch: &str) -> Payload {
    let body = json!({
        "check_suite": {
            "id": 118_578_147,
            "node_id": "CS_kwDOA",
            "head_branch": branch,
            "head_sha": head_sha,
            "status": "completed",
            "conclusion": "failure",
            "url": format!("{}/check-suites/118578147", repo.api()),
            "before": "b".repeat(40),
            "after": head_sha,
            "pull_requests": [],
            "app": { "id": 29310, "slug": "checks", "name": "checks", "owner": user(&repo.owner, &repo.host) },
            "created_at": CREATED,
            "updated_at": UPDATED,
            "latest_check_runs_count": 1,
            "check_runs_url": format!("{}/check-suites/118578147/check-runs", repo.api()),
            "head_commit": {
                "id": head_sha, "tree_id": "d".repeat(40), "message": "Change a room", "timestamp": UPDATED,
                "author": { "name": "Alice", "email": "alice@example.com" },
                "committer": { "name": "Alice", "email": "alice@example.com" }
            }
        }
    });
    Payload::new(
        "check_suite",
        repo.frame(Some("completed"), "checks[bot]", body),
    )
}
