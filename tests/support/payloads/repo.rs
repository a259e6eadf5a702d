//! Repositories, and what every event of one carries.

use serde_json::{Value, json};

use super::{CREATED, UPDATED};

/// A repository on a host.
#[derive(Clone, Debug)]
pub struct Repo {
    /// Host, with a port if it has one.
    pub host: String,
    /// Owner.
    pub owner: String,
    /// Name.
    pub name: String,
    /// The forge's id.
    pub id: u64,
    /// Default branch.
    pub default_branch: String,
    /// Whether it is a fork of another.
    pub fork: bool,
}

impl Repo {
    /// Returns a repository on github.com.
    pub fn new(owner: &str, name: &str, id: u64) -> Self {
        Self {
            host: "github.com".into(),
            owner: owner.into(),
            name: name.into(),
            id,
            default_branch: "main".into(),
            fork: false,
        }
    }

    /// Puts it on another host.
    #[must_use]
    pub fn on(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Returns somebody's fork of it.
    #[must_use]
    pub fn forked_by(&self, owner: &str, id: u64) -> Self {
        Self {
            owner: owner.into(),
            id,
            fork: true,
            ..self.clone()
        }
    }

    /// Returns `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub(super) fn html(&self) -> String {
        format!("https://{}/{}", self.host, self.full_name())
    }

    pub(super) fn api_root(&self) -> String {
        if self.host == "github.com" {
            "https://api.github.com".into()
        } else {
            format!("https://{}/api/v3", self.host)
        }
    }

    pub(super) fn api(&self) -> String {
        format!("{}/repos/{}", self.api_root(), self.full_name())
    }

    /// Returns the `repository` object.
    pub fn value(&self) -> Value {
        let (html, api, full) = (self.html(), self.api(), self.full_name());
        let mut value = json!({
            "id": self.id,
            "node_id": format!("R_kgDO{:08x}", self.id),
            "name": self.name,
            "full_name": full,
            "private": false,
            "owner": user(&self.owner, &self.host),
            "html_url": html,
            "description": "A made-up repository — ünïcode and \"quotes\" included 🐈",
            "fork": self.fork,
            "url": api,
            "created_at": CREATED,
            "updated_at": UPDATED,
            "pushed_at": UPDATED,
            "git_url": format!("git://{}/{full}.git", self.host),
            "ssh_url": format!("git@{}:{full}.git", self.host.split(':').next().unwrap_or_default()),
            "clone_url": format!("{html}.git"),
            "svn_url": html,
            "homepage": null,
            "size": 20481,
            "stargazers_count": 3,
            "watchers_count": 3,
            "language": "Rust",
            "has_issues": true,
            "has_projects": true,
            "has_downloads": true,
            "has_wiki": false,
            "has_pages": false,
            "has_discussions": false,
            "forks_count": 1,
            "mirror_url": null,
            "archived": false,
            "disabled": false,
            "open_issues_count": 7,
            "license": { "key": "mit", "name": "MIT License", "spdx_id": "MIT", "url": format!("{}/licenses/mit", self.api_root()), "node_id": "MDc6TGljZW5zZTEz" },
        });
        let settings = json!({
            "allow_forking": true,
            "is_template": false,
            "web_commit_signoff_required": false,
            "topics": ["innkeeping", "rooms"],
            "visibility": "public",
            "forks": 1,
            "open_issues": 7,
            "watchers": 3,
            "default_branch": self.default_branch,
            "allow_squash_merge": true,
            "allow_merge_commit": true,
            "allow_rebase_merge": true,
            "allow_auto_merge": false,
            "delete_branch_on_merge": true,
            "allow_update_branch": false,
            "use_squash_pr_title_as_default": false,
            "squash_merge_commit_message": "COMMIT_MESSAGES",
            "squash_merge_commit_title": "COMMIT_OR_PR_TITLE",
            "merge_commit_message": "PR_TITLE",
            "merge_commit_title": "MERGE_MESSAGE",
            "custom_properties": { "team": "rooms" }
        });
        value = joined(value, &settings);
        for (key, tail) in [
            ("forks_url", "forks"),
            ("keys_url", "keys{/key_id}"),
            ("collaborators_url", "collaborators{/collaborator}"),
            ("teams_url", "teams"),
            ("hooks_url", "hooks"),
            ("issue_events_url", "issues/events{/number}"),
            ("events_url", "events"),
            ("assignees_url", "assignees{/user}"),
            ("branches_url", "branches{/branch}"),
            ("tags_url", "tags"),
            ("blobs_url", "git/blobs{/sha}"),
            ("git_tags_url", "git/tags{/sha}"),
            ("git_refs_url", "git/refs{/sha}"),
            ("trees_url", "git/trees{/sha}"),
            ("statuses_url", "statuses/{sha}"),
            ("languages_url", "languages"),
            ("stargazers_url", "stargazers"),
            ("contributors_url", "contributors"),
            ("subscribers_url", "subscribers"),
            ("subscription_url", "subscription"),
            ("commits_url", "commits{/sha}"),
            ("git_commits_url", "git/commits{/sha}"),
            ("comments_url", "comments{/number}"),
            ("issue_comment_url", "issues/comments{/number}"),
            ("contents_url", "contents/{+path}"),
            ("compare_url", "compare/{base}...{head}"),
            ("merges_url", "merges"),
            ("archive_url", "{archive_format}{/ref}"),
            ("downloads_url", "downloads"),
            ("issues_url", "issues{/number}"),
            ("pulls_url", "pulls{/number}"),
            ("milestones_url", "milestones{/number}"),
            (
                "notifications_url",
                "notifications{?since,all,participating}",
            ),
            ("labels_url", "labels{/name}"),
            ("releases_url", "releases{/id}"),
            ("deployments_url", "deployments"),
        ] {
            value[key] = json!(format!("{api}/{tail}"));
        }
        value
    }

    /// Adds what every event of a repository carries.
    pub(super) fn frame(&self, action: Option<&str>, sender: &str, mut body: Value) -> Value {
        if let Some(action) = action {
            body["action"] = json!(action);
        }
        body["repository"] = self.value();
        body["organization"] = organization(&self.owner, &self.api_root());
        body["sender"] = user(sender, &self.host);
        body["installation"] = json!({ "id": 4_242_424, "node_id": "MDIzOkludGVncmF0aW9uSW5zdGFsbGF0aW9uNDI0MjQyNA==" });
        body
    }
}

/// Returns an object with the fields of both: one `json!` of all of them nests
/// deeper than the compiler allows.
pub(super) fn joined(mut first: Value, second: &Value) -> Value {
    for (key, value) in second.as_object().expect("an object was just written") {
        first[key] = value.clone();
    }
    first
}

pub(super) fn organization(login: &str, api: &str) -> Value {
    json!({
        "login": login,
        "id": id_of(login),
        "node_id": "O_kgDOA",
        "url": format!("{api}/orgs/{login}"),
        "repos_url": format!("{api}/orgs/{login}/repos"),
        "events_url": format!("{api}/orgs/{login}/events"),
        "hooks_url": format!("{api}/orgs/{login}/hooks"),
        "issues_url": format!("{api}/orgs/{login}/issues"),
        "members_url": format!("{api}/orgs/{login}/members{{/member}}"),
        "public_members_url": format!("{api}/orgs/{login}/public_members{{/member}}"),
        "avatar_url": "https://avatars.example/u/1?v=4",
        "description": null
    })
}

/// Returns a user as GitHub describes one; a login that ends in `[bot]` is one.
pub fn user(login: &str, host: &str) -> Value {
    let api = if host == "github.com" {
        "https://api.github.com".to_owned()
    } else {
        format!("https://{host}/api/v3")
    };
    let kind = if login.ends_with("[bot]") {
        "Bot"
    } else {
        "User"
    };
    json!({
        "login": login,
        "id": id_of(login),
        "node_id": format!("U_kgDO{:06x}", id_of(login)),
        "avatar_url": format!("https://avatars.example/u/{}?v=4", id_of(login)),
        "gravatar_id": "",
        "url": format!("{api}/users/{login}"),
        "html_url": format!("https://{host}/{login}"),
        "followers_url": format!("{api}/users/{login}/followers"),
        "following_url": format!("{api}/users/{login}/following{{/other_user}}"),
        "gists_url": format!("{api}/users/{login}/gists{{/gist_id}}"),
        "starred_url": format!("{api}/users/{login}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{api}/users/{login}/subscriptions"),
        "organizations_url": format!("{api}/users/{login}/orgs"),
        "repos_url": format!("{api}/users/{login}/repos"),
        "events_url": format!("{api}/users/{login}/events{{/privacy}}"),
        "received_events_url": format!("{api}/users/{login}/received_events"),
        "type": kind,
        "user_view_type": "public",
        "site_admin": false
    })
}

fn id_of(login: &str) -> u64 {
    login
        .bytes()
        .fold(1000, |id, byte| id * 31 % 90_000_049 + u64::from(byte))
}

pub(super) fn labels(repo: &Repo, names: &[String]) -> Value {
    names.iter().map(|name| label(repo, name)).collect()
}

pub(super) fn label(repo: &Repo, name: &str) -> Value {
    json!({
        "id": id_of(name),
        "node_id": "LA_kwDOA",
        "url": format!("{}/labels/{name}", repo.api()),
        "name": name,
        "color": "0e8a16",
        "default": false,
        "description": "Made up"
    })
}

pub(super) fn reactions(api: &str) -> Value {
    json!({
        "url": format!("{api}/reactions"), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0, "hooray": 0,
        "confused": 0, "heart": 0, "rocket": 0, "eyes": 0
    })
}
