//! Tables of decisions.

use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::*;
use crate::domain::envelope::{Comment, Head};
use crate::domain::work_item::{Forge, ItemKind, ItemName};

fn policy() -> Policy {
    Policy {
        hosts: HostPolicy::default(),
        repositories: vec![Pattern::repository("*").expect("a glob")],
        label: "innkeeper".into(),
        command: "/innkeeper".into(),
        trust: Trust {
            associations: vec!["OWNER".into(), "MEMBER".into(), "COLLABORATOR".into()],
            users: vec!["friend".into()],
            bots: vec!["good[bot]".into()],
        },
        rules: vec![],
    }
}

fn with_rule(when: When, then: Then) -> Policy {
    Policy {
        rules: vec![Rule {
            name: "own".into(),
            when,
            then,
            profile: Some("claude".into()),
            strategy: Some(Strategy::Clone),
        }],
        ..policy()
    }
}

fn actor(login: &str) -> Actor {
    Actor {
        login: login.into(),
        bot: login.ends_with("[bot]"),
    }
}

fn pull_request(action: &str) -> Envelope {
    Envelope {
        event: "pull_request".into(),
        action: Some(action.into()),
        repository: Some("acme/app".into()),
        sender: Some(actor("alice")),
        item: Some(ItemState {
            name: ItemName {
                forge: Forge::Github,
                host: "github.com".into(),
                owner: "acme".into(),
                repo: "app".into(),
                repo_id: Some(7),
                number: 15,
            },
            kind: ItemKind::PullRequest,
            title: String::new(),
            body: String::new(),
            url: None,
            author: Some(actor("alice")),
            association: Some("MEMBER".into()),
            open: Some(action != "closed"),
            labels: vec![],
            draft: false,
            merged: Some(false),
            head: Some(Head {
                sha: None,
                branch: Some("topic".into()),
                fork: false,
                repository_gone: false,
            }),
            base: Some("main".into()),
        }),
        ..Envelope::default()
    }
}

fn comment(login: &str, association: &str, body: &str) -> Envelope {
    let mut envelope = pull_request("created");
    envelope.event = "issue_comment".into();
    envelope.sender = Some(actor(login));
    if let Some(item) = &mut envelope.item {
        item.head = None;
    }
    envelope.comment = Some(Comment {
        id: Some(1),
        body: body.into(),
        author: Some(actor(login)),
        association: Some(association.into()),
        url: None,
    });
    envelope
}

fn item(envelope: &mut Envelope) -> &mut ItemState {
    envelope
        .item
        .as_mut()
        .expect("the test's event has an item")
}

fn labelled(mut envelope: Envelope, label: &str) -> Envelope {
    item(&mut envelope).labels.push(label.into());
    envelope
}

fn sent_by(mut envelope: Envelope, login: &str) -> Envelope {
    envelope.sender = Some(actor(login));
    envelope
}

fn opened_by(mut envelope: Envelope, login: &str, association: &str) -> Envelope {
    item(&mut envelope).author = Some(actor(login));
    item(&mut envelope).association = Some(association.into());
    envelope
}

/// `labeled` or `unlabeled` with this label.
fn label_event(action: &str, label: &str) -> Envelope {
    Envelope {
        label: Some(label.into()),
        ..sent_by(pull_request(action), "maintainer")
    }
}

fn fresh() -> ItemFacts {
    ItemFacts::default()
}

/// An open item with a session in a checkout.
fn at_work() -> ItemFacts {
    ItemFacts {
        known: true,
        open: true,
        armed: true,
        has_session: true,
        has_checkout: true,
        ..ItemFacts::default()
    }
}

/// An item that was closed and whose checkout is gone.
fn gone() -> ItemFacts {
    ItemFacts {
        known: true,
        open: false,
        armed: true,
        ..ItemFacts::default()
    }
}

/// An item that was closed and whose checkout was kept.
fn kept() -> ItemFacts {
    ItemFacts {
        has_checkout: true,
        ..gone()
    }
}

fn paused() -> ItemFacts {
    ItemFacts {
        paused: true,
        ..at_work()
    }
}

/// Returns a decision as two words: `act start`, `drop no-rule`.
fn verdict(policy: &Policy, envelope: &Envelope, facts: &ItemFacts) -> String {
    match decide(policy, envelope, facts) {
        Decision::Act(act) => format!("act {}", act.action.as_str()),
        Decision::Drop(reason) => format!("drop {reason}"),
    }
}

fn assert_verdict(policy: &Policy, envelope: &Envelope, facts: &ItemFacts, wanted: &str) {
    let found = verdict(policy, envelope, facts);
    assert_eq!(found, wanted, "{envelope:#?}\n{facts:#?}");
}

#[test]
fn what_is_about_no_item_is_dropped_with_the_reason() {
    let event = |name: &str| Envelope {
        event: name.into(),
        ..Envelope::default()
    };
    for (envelope, wanted) in [
        (event("ping"), "drop ping"),
        (event("push"), "drop event-not-handled"),
        (event("check_suite"), "drop event-not-handled"),
        (event(""), "drop event-not-handled"),
        (event("pull_request"), "drop no-work-item"),
        (event("issues"), "drop no-work-item"),
    ] {
        assert_verdict(&policy(), &envelope, &fresh(), wanted);
        let all = with_rule(When::default(), Then::Start);
        assert_verdict(&all, &envelope, &at_work(), wanted);
    }
}

#[test]
fn only_allowed_repositories_on_served_hosts_are_worked_with() {
    let opened = labelled(pull_request("opened"), "innkeeper");
    let mut narrow = policy();
    narrow.repositories = vec![Pattern::repository("other/*").expect("a glob")];
    assert_verdict(&narrow, &opened, &fresh(), "drop repository-not-allowed");
    narrow.repositories = vec![Pattern::repository("ACME/*").expect("a glob")];
    assert_verdict(&narrow, &opened, &fresh(), "act start");
    narrow.repositories = vec![];
    assert_verdict(&narrow, &opened, &fresh(), "drop repository-not-allowed");
    let mut elsewhere = opened.clone();
    item(&mut elsewhere).name.host = "evil-github.com".into();
    assert_verdict(
        &policy(),
        &elsewhere,
        &fresh(),
        "drop repository-not-allowed",
    );
    // What was made before the configuration was narrowed is still taken away.
    assert_verdict(&narrow, &pull_request("closed"), &at_work(), "act close");
    assert_verdict(
        &narrow,
        &pull_request("closed"),
        &fresh(),
        "drop repository-not-allowed",
    );
    assert_verdict(&narrow, &opened, &at_work(), "drop repository-not-allowed");
}

#[test]
fn the_label_starts_an_item_on_four_actions() {
    for (action, wanted) in [
        ("opened", "act start"),
        ("reopened", "act start"),
        ("ready_for_review", "act start"),
        ("synchronize", "drop no-rule"),
        ("edited", "drop no-rule"),
        ("assigned", "drop no-rule"),
        ("a_new_action", "drop no-rule"),
    ] {
        let envelope = labelled(pull_request(action), "InnKeeper");
        assert_verdict(&policy(), &envelope, &fresh(), wanted);
        assert_verdict(&policy(), &pull_request(action), &fresh(), "drop no-rule");
        let remembered = ItemFacts {
            labels: vec!["innkeeper".into()],
            known: true,
            open: true,
            ..fresh()
        };
        assert_verdict(&policy(), &pull_request(action), &remembered, wanted);
    }
    assert_verdict(
        &policy(),
        &label_event("labeled", "Innkeeper"),
        &fresh(),
        "act start",
    );
    let other = labelled(label_event("labeled", "other"), "innkeeper");
    assert_verdict(&policy(), &other, &fresh(), "drop no-rule");
    assert_verdict(&policy(), &other, &at_work(), "act deliver");
}

#[test]
fn a_start_arms_and_losing_the_label_disarms_while_what_runs_goes_on() {
    let Decision::Act(act) = decide(&policy(), &label_event("labeled", "innkeeper"), &fresh())
    else {
        panic!("a start was expected");
    };
    assert!(act.arm);
    assert_eq!(
        (act.rule.as_str(), act.profile, act.strategy),
        ("built-in: label", None, None)
    );
    let unlabeled = label_event("unlabeled", "innkeeper");
    for facts in [at_work(), paused(), kept(), gone()] {
        assert_verdict(&policy(), &unlabeled, &facts, "act disarm");
    }
    assert_verdict(&policy(), &unlabeled, &fresh(), "drop no-rule");
    assert_verdict(
        &policy(),
        &label_event("unlabeled", "other"),
        &at_work(),
        "act deliver",
    );
}

#[test]
fn a_command_counts_in_a_new_comment_or_review_of_a_trusted_actor() {
    for (word, wanted) in [
        ("start", "act start"),
        ("stop", "act stop"),
        ("pause", "act pause"),
        ("resume", "act resume"),
        ("status", "act status"),
        ("cleanup", "act cleanup"),
        ("dance", "act deliver"),
    ] {
        let body = format!("/innkeeper {word}");
        let by = |login: &str, association: &str| comment(login, association, &body);
        assert_verdict(&policy(), &by("m", "MEMBER"), &at_work(), wanted);
        assert_verdict(&policy(), &by("friend", "NONE"), &at_work(), wanted);
        assert_verdict(&policy(), &by("good[bot]", "NONE"), &at_work(), wanted);
        assert_verdict(
            &policy(),
            &by("mallory", "NONE"),
            &at_work(),
            "drop untrusted-actor",
        );
        assert_verdict(
            &policy(),
            &by("mallory", "CONTRIBUTOR"),
            &at_work(),
            "drop untrusted-actor",
        );
        assert_verdict(&policy(), &by("bad[bot]", "MEMBER"), &at_work(), "drop bot");
        if word != "dance" {
            assert_verdict(
                &policy(),
                &by("mallory", "NONE"),
                &fresh(),
                "drop untrusted-actor",
            );
            let mut edited = by("m", "MEMBER");
            edited.action = Some("edited".into());
            assert_verdict(&policy(), &edited, &at_work(), "act deliver");
            assert_verdict(&policy(), &edited, &fresh(), "drop no-rule");
            let mut review = by("m", "MEMBER");
            review.event = "pull_request_review".into();
            review.action = Some("submitted".into());
            assert_verdict(&policy(), &review, &at_work(), wanted);
        }
    }
}

#[test]
fn any_trusted_event_of_an_item_with_a_session_is_handed_to_it() {
    for action in ["synchronize", "edited", "review_requested", "a_new_action"] {
        assert_verdict(&policy(), &pull_request(action), &at_work(), "act deliver");
    }
    assert_verdict(
        &policy(),
        &comment("m", "OWNER", "please"),
        &at_work(),
        "act deliver",
    );
    assert_verdict(
        &policy(),
        &comment("x", "NONE", "please"),
        &at_work(),
        "drop untrusted-actor",
    );
    assert_verdict(
        &policy(),
        &comment("x[bot]", "NONE", "hi"),
        &at_work(),
        "drop bot",
    );
    assert_verdict(
        &policy(),
        &comment("x[bot]", "NONE", "hi"),
        &fresh(),
        "drop bot",
    );
    assert_verdict(
        &policy(),
        &comment("m", "OWNER", "please"),
        &fresh(),
        "drop no-rule",
    );
}

#[test]
fn the_standing_of_an_actor_follows_what_vouches_for_it() {
    let fork = |mut envelope: Envelope| {
        item(&mut envelope).head = Some(Head {
            fork: true,
            ..Head::default()
        });
        envelope
    };
    let stranger = |action: &str| opened_by(sent_by(pull_request(action), "x"), "x", "NONE");
    let table = [
        (
            pull_request("opened"),
            Standing::Trusted,
            "the author's association",
        ),
        (
            stranger("opened"),
            Standing::Untrusted,
            "the author's association",
        ),
        (
            stranger("synchronize"),
            Standing::Trusted,
            "a push to the own branch",
        ),
        (
            fork(stranger("synchronize")),
            Standing::Untrusted,
            "a push to a fork",
        ),
        (
            fork(pull_request("synchronize")),
            Standing::Trusted,
            "a member's fork",
        ),
        (
            stranger("labeled"),
            Standing::Untrusted,
            "an issue form labels for anybody",
        ),
        (
            sent_by(stranger("labeled"), "m"),
            Standing::Trusted,
            "labelling needs rights",
        ),
        (
            sent_by(stranger("assigned"), "m"),
            Standing::Trusted,
            "assigning needs rights",
        ),
        (
            sent_by(stranger("milestoned"), "m"),
            Standing::Trusted,
            "milestones need rights",
        ),
        (
            sent_by(stranger("labeled"), "any[bot]"),
            Standing::Trusted,
            "bots label with rights",
        ),
        (
            sent_by(stranger("edited"), "m"),
            Standing::Untrusted,
            "nobody vouches",
        ),
        (
            sent_by(stranger("edited"), "friend"),
            Standing::Trusted,
            "named",
        ),
        (
            sent_by(stranger("edited"), "FRIEND"),
            Standing::Trusted,
            "named",
        ),
        (
            sent_by(stranger("edited"), "any[bot]"),
            Standing::Bot,
            "a bot",
        ),
        (
            sent_by(stranger("edited"), "good[bot]"),
            Standing::Trusted,
            "a named bot",
        ),
        (
            opened_by(
                sent_by(pull_request("opened"), "d[bot]"),
                "d[bot]",
                "MEMBER",
            ),
            Standing::Bot,
            "opened by a bot",
        ),
        (
            opened_by(
                sent_by(pull_request("synchronize"), "d[bot]"),
                "d[bot]",
                "NONE",
            ),
            Standing::Trusted,
            "a bot's push",
        ),
        (
            Envelope {
                sender: None,
                ..pull_request("opened")
            },
            Standing::Untrusted,
            "nobody",
        ),
        (
            comment("x", "OWNER", ""),
            Standing::Trusted,
            "the comment's association",
        ),
        (
            comment("x", "FIRST_TIMER", ""),
            Standing::Untrusted,
            "the comment's association",
        ),
        (
            sent_by(comment("x", "NONE", ""), "alice"),
            Standing::Untrusted,
            "a stranger's text",
        ),
        (
            sent_by(comment("x", "OWNER", ""), "y[bot]"),
            Standing::Bot,
            "a bot edited it",
        ),
    ];
    for (envelope, wanted, why) in table {
        assert_eq!(
            standing(&policy(), &envelope, &fresh()),
            wanted,
            "{why}: {envelope:#?}"
        );
    }
}

#[test]
fn an_untrusted_actor_neither_starts_nor_reaches_a_session_and_closing_acts() {
    let mallory = |action: &str| {
        let envelope = opened_by(sent_by(pull_request(action), "mallory"), "mallory", "NONE");
        let mut envelope = labelled(envelope, "innkeeper");
        item(&mut envelope).head = None;
        envelope
    };
    let start_all = with_rule(When::default(), Then::Start);
    let close_all = with_rule(When::default(), Then::Close);
    for action in [
        "opened",
        "reopened",
        "ready_for_review",
        "synchronize",
        "edited",
        "labeled",
    ] {
        for policy in [&policy(), &start_all, &close_all] {
            assert_verdict(policy, &mallory(action), &at_work(), "drop untrusted-actor");
        }
        assert_verdict(
            &start_all,
            &mallory(action),
            &fresh(),
            "drop untrusted-actor",
        );
    }
    for policy in [&policy(), &start_all, &close_all] {
        for facts in [fresh(), at_work(), paused(), kept()] {
            assert_verdict(policy, &mallory("closed"), &facts, "act close");
            let bot = sent_by(mallory("closed"), "any[bot]");
            assert_verdict(policy, &bot, &facts, "act close");
        }
        assert_verdict(policy, &mallory("closed"), &gone(), "drop already-closed");
    }
    // A maintainer's label starts a stranger's item; it is prepared as untrusted.
    let armed = Envelope {
        label: Some("innkeeper".into()),
        ..sent_by(mallory("labeled"), "maintainer")
    };
    assert_verdict(&policy(), &armed, &fresh(), "act start");
    assert!(is_item_untrusted(&policy(), armed.item.as_ref(), &fresh()));
}

#[test]
fn own_rules_come_first_in_order_and_only_the_first_match_decides() {
    let mut own = with_rule(
        When {
            action: vec!["synchronize".into()],
            ..When::default()
        },
        Then::Start,
    );
    let Decision::Act(act) = decide(&own, &pull_request("synchronize"), &fresh()) else {
        panic!("a start was expected");
    };
    assert_eq!(act.rule, "own");
    assert_eq!(act.profile.as_deref(), Some("claude"));
    assert_eq!(act.strategy, Some(Strategy::Clone));
    own.rules.push(Rule {
        name: "rest".into(),
        when: When::default(),
        then: Then::Ignore,
        profile: None,
        strategy: None,
    });
    assert_verdict(&own, &pull_request("synchronize"), &fresh(), "act start");
    let opened = labelled(pull_request("opened"), "innkeeper");
    assert_verdict(&own, &opened, &fresh(), "drop no-rule");
    own.rules.swap(0, 1);
    assert_verdict(&own, &pull_request("synchronize"), &fresh(), "drop no-rule");
}

#[test]
fn a_rule_to_deliver_only_reaches_a_session_that_is_there() {
    let deliver = with_rule(When::default(), Then::Deliver);
    let opened = labelled(pull_request("opened"), "innkeeper");
    assert_verdict(&deliver, &opened, &fresh(), "drop no-session");
    assert_verdict(&deliver, &opened, &at_work(), "act deliver");
    assert_verdict(&deliver, &opened, &paused(), "drop paused");
}

#[test]
fn each_condition_of_a_rule_can_match_and_can_fail() {
    let words = |text: &str| vec![text.to_owned()];
    let repository = |glob: &str| vec![Pattern::repository(glob).expect("a glob")];
    let branch = |glob: &str| vec![Pattern::branch(glob).expect("a glob")];
    let command = comment("m", "MEMBER", "/innkeeper deploy now");
    let opened = labelled(pull_request("opened"), "needs-agent");
    let table: Vec<(&Envelope, When, When)> = vec![
        (
            &opened,
            When {
                event: words("pull_request"),
                ..When::default()
            },
            When {
                event: words("issues"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                action: words("opened"),
                ..When::default()
            },
            When {
                action: words("closed"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                repository: repository("Acme/*"),
                ..When::default()
            },
            When {
                repository: repository("acme"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                label: words("NEEDS-agent"),
                ..When::default()
            },
            When {
                label: words("needs"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                author: words("Alice"),
                ..When::default()
            },
            When {
                author: words("bob"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                association: words("member"),
                ..When::default()
            },
            When {
                association: words("OWNER"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                fork: Some(false),
                ..When::default()
            },
            When {
                fork: Some(true),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                draft: Some(false),
                ..When::default()
            },
            When {
                draft: Some(true),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                base: branch("ma*"),
                ..When::default()
            },
            When {
                base: branch("Main"),
                ..When::default()
            },
        ),
        (
            &opened,
            When {
                branch: branch("topic"),
                ..When::default()
            },
            When {
                branch: branch("t/*"),
                ..When::default()
            },
        ),
        (
            &command,
            When {
                command: words("deploy"),
                ..When::default()
            },
            When {
                command: words("start"),
                ..When::default()
            },
        ),
        (
            &command,
            When {
                association: words("MEMBER"),
                ..When::default()
            },
            When {
                association: words("OWNER"),
                ..When::default()
            },
        ),
    ];
    for (envelope, matching, failing) in table {
        let start = with_rule(matching.clone(), Then::Start);
        assert_verdict(&start, envelope, &fresh(), "act start");
        let start = with_rule(failing.clone(), Then::Start);
        assert_ne!(
            verdict(&start, envelope, &fresh()),
            "act start",
            "{failing:?}"
        );
        let both = When {
            event: words("issues"),
            ..matching
        };
        let start = with_rule(both, Then::Start);
        assert_ne!(
            verdict(&start, envelope, &fresh()),
            "act start",
            "all must match"
        );
    }
}

#[test]
fn what_a_comment_does_not_say_is_taken_from_what_is_remembered() {
    let envelope = comment("m", "MEMBER", "hello");
    for fork in [true, false] {
        let rule = with_rule(
            When {
                fork: Some(fork),
                branch: vec![Pattern::branch("topic").expect("a glob")],
                ..When::default()
            },
            Then::Start,
        );
        assert_verdict(&rule, &envelope, &fresh(), "drop no-rule");
        let facts = ItemFacts {
            fork: Some(fork),
            branch: Some("topic".into()),
            ..fresh()
        };
        assert_verdict(&rule, &envelope, &facts, "act start");
    }
    let mut issue = envelope;
    item(&mut issue).kind = ItemKind::Issue;
    let rule = with_rule(
        When {
            fork: Some(false),
            ..When::default()
        },
        Then::Start,
    );
    assert_verdict(&rule, &issue, &fresh(), "act start");
}

#[test]
fn an_items_own_close_ends_it_unless_a_rule_says_ignore() {
    let closed = pull_request("closed");
    for then in [Then::Start, Then::Deliver, Then::Close] {
        let own = with_rule(When::default(), then);
        assert_verdict(&own, &closed, &at_work(), "act close");
        assert!(is_close(&own, &closed));
    }
    let ignore = with_rule(When::default(), Then::Ignore);
    assert_verdict(&ignore, &closed, &at_work(), "drop no-rule");
    assert!(!is_close(&ignore, &closed));
}

#[test]
fn a_close_that_says_that_the_item_is_open_closes_nothing() {
    let mut closed = pull_request("closed");
    item(&mut closed).open = Some(true);
    assert_eq!(closed_state(&closed), ClosedState::Contradicted);
    assert_verdict(&policy(), &closed, &at_work(), "drop superseded");
    assert!(!is_close(&policy(), &closed));
    assert!(open_after(&closed, Some(true)));
    item(&mut closed).open = None;
    assert_eq!(
        closed_state(&closed),
        ClosedState::Closed {
            merged: Some(false)
        }
    );
}

#[test]
fn an_issue_that_is_deleted_or_transferred_is_over() {
    for action in ["deleted", "transferred"] {
        let mut envelope = pull_request(action);
        assert_eq!(closed_state(&envelope), ClosedState::NotAClose);
        envelope.event = "issues".into();
        item(&mut envelope).kind = ItemKind::Issue;
        assert_verdict(&policy(), &envelope, &at_work(), "act close");
        assert!(!open_after(&envelope, Some(true)));
    }
}

#[test]
fn a_closed_item_is_started_by_nothing_but_its_reopening() {
    let start_all = with_rule(When::default(), Then::Start);
    for action in [
        "opened",
        "synchronize",
        "edited",
        "labeled",
        "ready_for_review",
    ] {
        // A late delivery, written while the item was open.
        assert_verdict(
            &start_all,
            &pull_request(action),
            &gone(),
            "drop already-closed",
        );
        // The close was missed, and the payload tells of it.
        let mut closed = pull_request(action);
        item(&mut closed).open = Some(false);
        assert_verdict(&start_all, &closed, &fresh(), "drop already-closed");
        // What was kept is judged again.
        assert_verdict(&start_all, &pull_request(action), &kept(), "act close");
        assert_verdict(&policy(), &pull_request(action), &kept(), "act close");
    }
    assert_verdict(
        &start_all,
        &comment("m", "OWNER", "/innkeeper start"),
        &gone(),
        "drop already-closed",
    );
    assert_verdict(
        &policy(),
        &comment("m", "OWNER", "/innkeeper start"),
        &gone(),
        "drop already-closed",
    );
    assert_verdict(
        &policy(),
        &comment("m", "OWNER", "/innkeeper cleanup"),
        &kept(),
        "act cleanup",
    );
    assert_verdict(
        &policy(),
        &comment("x", "NONE", "bye"),
        &kept(),
        "act close",
    );
    // Also at what somebody may not ask for.
    for command in ["start", "stop", "pause", "resume", "status", "cleanup"] {
        let text = format!("/innkeeper {command}");
        for who in ["x", "any[bot]"] {
            let said = comment(who, "NONE", &text);
            assert_verdict(&policy(), &said, &kept(), "act close");
            assert_ne!(verdict(&policy(), &said, &gone()), "act close");
        }
    }
    for facts in [gone(), kept()] {
        assert_verdict(&policy(), &pull_request("reopened"), &facts, "act start");
        let mut late = pull_request("reopened");
        item(&mut late).open = Some(false);
        assert_ne!(verdict(&policy(), &late, &facts), "act start");
    }
}

#[test]
fn the_last_state_wins_and_a_late_delivery_reopens_nothing() {
    let mut open = None;
    for (action, says_open, wanted) in [
        ("opened", true, true),
        ("closed", false, false),
        ("synchronize", true, false),
        ("opened", true, false),
        ("reopened", false, false),
        ("reopened", true, true),
        ("closed", true, true),
        ("edited", false, true),
        ("closed", false, false),
    ] {
        let mut envelope = pull_request(action);
        item(&mut envelope).open = Some(says_open);
        let after = open_after(&envelope, open);
        assert_eq!(after, wanted, "{action} {says_open}");
        open = Some(after);
    }
    let mut unknown = pull_request("edited");
    item(&mut unknown).open = Some(false);
    assert!(!open_after(&unknown, None));
    item(&mut unknown).open = None;
    assert!(open_after(&unknown, None));
}

#[test]
fn a_paused_item_takes_commands_and_its_close_and_nothing_else() {
    for (envelope, wanted) in [
        (pull_request("synchronize"), "drop paused"),
        (
            labelled(pull_request("ready_for_review"), "innkeeper"),
            "drop paused",
        ),
        (comment("m", "OWNER", "hello"), "drop paused"),
        (comment("x", "NONE", "hello"), "drop untrusted-actor"),
        (comment("m", "OWNER", "/innkeeper start"), "drop paused"),
        (comment("m", "OWNER", "/innkeeper resume"), "act resume"),
        (comment("m", "OWNER", "/innkeeper pause"), "act pause"),
        (comment("m", "OWNER", "/innkeeper stop"), "act stop"),
        (comment("m", "OWNER", "/innkeeper status"), "act status"),
        (comment("m", "OWNER", "/innkeeper cleanup"), "act cleanup"),
        (pull_request("closed"), "act close"),
    ] {
        assert_verdict(&policy(), &envelope, &paused(), wanted);
    }
}

#[test]
fn a_preparation_is_cancelled_by_what_ends_the_item() {
    let cancels = |envelope: &Envelope| is_close(&policy(), envelope);
    assert!(cancels(&pull_request("closed")));
    assert!(cancels(&sent_by(pull_request("closed"), "mallory")));
    assert!(cancels(&comment("m", "OWNER", "/innkeeper cleanup")));
    assert!(!cancels(&comment("x", "NONE", "/innkeeper cleanup")));
    assert!(!cancels(&comment("m", "OWNER", "/innkeeper stop")));
    assert!(!cancels(&pull_request("synchronize")));
    let mut late = comment("m", "OWNER", "thanks");
    item(&mut late).open = Some(false);
    assert!(!cancels(&late));
}

#[test]
fn an_item_is_untrusted_by_its_head_or_its_author() {
    let is_untrusted = |envelope: &Envelope, facts: &ItemFacts| {
        is_item_untrusted(&policy(), envelope.item.as_ref(), facts)
    };
    let own = pull_request("opened");
    assert!(!is_untrusted(&own, &fresh()));
    assert!(is_untrusted(
        &opened_by(own.clone(), "x", "CONTRIBUTOR"),
        &fresh()
    ));
    assert!(!is_untrusted(
        &opened_by(own.clone(), "friend", "NONE"),
        &fresh()
    ));
    assert!(is_untrusted(
        &opened_by(own.clone(), "x[bot]", "MEMBER"),
        &fresh()
    ));
    assert!(!is_untrusted(
        &opened_by(own.clone(), "good[bot]", "NONE"),
        &fresh()
    ));
    for (fork, gone) in [(true, false), (true, true), (false, true)] {
        let mut envelope = own.clone();
        item(&mut envelope).head = Some(Head {
            fork,
            repository_gone: gone,
            ..Head::default()
        });
        assert!(is_untrusted(&envelope, &fresh()));
    }
    let said = comment("m", "OWNER", "");
    assert!(is_untrusted(&said, &fresh()), "the head is not known");
    for fork in [true, false] {
        let facts = ItemFacts {
            fork: Some(fork),
            ..fresh()
        };
        assert_eq!(is_untrusted(&said, &facts), fork);
    }
    assert!(is_item_untrusted(&policy(), None, &at_work()));
    let remembered = ItemFacts {
        fork: Some(false),
        author: Some(actor("alice")),
        association: Some("OWNER".into()),
        ..at_work()
    };
    assert!(!is_item_untrusted(&policy(), None, &remembered));
}

#[test]
fn every_action_is_found_by_its_name() {
    for action in Action::ALL {
        assert_eq!(Action::from_name(action.as_str()), Some(*action));
    }
    assert_eq!(Action::from_name("nothing"), None);
}

fn any_envelope() -> impl Generator<Value = Envelope> {
    let events = prop::sample::select(vec![
        "pull_request",
        "issues",
        "issue_comment",
        "pull_request_review",
        "pull_request_review_comment",
        "pull_request_review_thread",
        "ping",
        "push",
        "",
    ]);
    let actions = prop::sample::select(vec![
        "opened",
        "closed",
        "reopened",
        "labeled",
        "unlabeled",
        "synchronize",
        "edited",
        "created",
        "submitted",
        "deleted",
        "transferred",
        "ready_for_review",
        "?",
    ]);
    let logins = prop::sample::select(vec!["alice", "friend", "mallory", "good[bot]", "bad[bot]"]);
    let associations = prop::sample::select(vec!["MEMBER", "NONE", "?"]);
    let bodies = prop_oneof![
        Just("/innkeeper start".to_owned()),
        Just("/innkeeper cleanup".to_owned()),
        any::<String>()
    ];
    let head = prop::option::of(any::<bool>());
    let open = prop::option::of(any::<bool>());
    (
        (
            events,
            actions,
            logins.clone(),
            logins,
            associations.clone(),
            associations,
        ),
        (
            bodies,
            head,
            open,
            any::<bool>(),
            any::<bool>(),
            any::<String>(),
        ),
    )
        .prop_map(
            |((event, action, sender, author, item_association, said), rest)| {
                let (body, head, open, has_comment, has_label, noise) = rest;
                let mut envelope = comment(sender, said, &body);
                envelope.event = event.into();
                envelope.action = Some(action.into());
                envelope.label = has_label.then(|| "innkeeper".into());
                if !has_comment {
                    envelope.comment = None;
                }
                let item = item(&mut envelope);
                item.author = Some(actor(author));
                item.association = Some(item_association.into());
                item.open = open;
                item.head = head.map(|fork| Head {
                    fork,
                    branch: Some(noise.clone()),
                    ..Head::default()
                });
                item.labels = if has_label {
                    vec!["innkeeper".into(), noise]
                } else {
                    vec![noise]
                };
                envelope
            },
        )
}

fn any_facts() -> impl Generator<Value = ItemFacts> {
    (any::<[bool; 6]>(), prop::option::of(any::<bool>())).prop_map(|(flags, fork)| {
        let [known, open, armed, paused, has_session, has_checkout] = flags;
        ItemFacts {
            known,
            open,
            armed,
            paused,
            has_session,
            has_checkout,
            fork,
            ..ItemFacts::default()
        }
    })
}

proptest! {
    #[test]
    fn whatever_comes_an_untrusted_actor_starts_and_reaches_nothing(
        envelope in any_envelope(),
        facts in any_facts(),
        then in prop::sample::select(vec![Then::Start, Then::Deliver, Then::Close]),
        own in any::<bool>(),
    ) {
        let policy = if own { with_rule(When::default(), then) } else { policy() };
        let decision = decide(&policy, &envelope, &facts);
        let Decision::Act(act) = decision else { return Ok(()) };
        if standing(&policy, &envelope, &facts) != Standing::Trusted {
            prop_assert!(matches!(act.action, Action::Close | Action::Disarm), "{act:?}");
        }
        if matches!(act.action, Action::Start | Action::Deliver) {
            prop_assert!(!facts.paused);
            let reopened = envelope.action.as_deref() == Some("reopened");
            prop_assert!(reopened || facts.open || !facts.known, "a closed item was started");
        }
        if act.action == Action::Deliver {
            prop_assert!(facts.has_session);
        }
        prop_assert_eq!(act.arm, act.action == Action::Start);
    }

    #[test]
    fn a_close_always_leaves_the_item_closed(envelope in any_envelope(), before in any::<Option<bool>>()) {
        if matches!(closed_state(&envelope), ClosedState::Closed { .. }) {
            prop_assert!(!open_after(&envelope, before));
        }
    }
}
