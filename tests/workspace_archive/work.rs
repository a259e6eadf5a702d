//! Every kind of work, alone and all together: archived, everything unreachable
//! forgotten, restored, compared, and gone on with.

use std::collections::VecDeque;

use innkeeper::domain::checkout::Strategy;
use tokio::task::JoinHandle;

use crate::git_fixture::Fixture;
use crate::picture::{Picture, git_dir, named};
use crate::world::{STRATEGIES, World};

pub const COMMIT: &str = "echo work > work; git add work; git commit -qm work";
pub const EDIT: &str = "echo more >> README";

/// What the agent did, and what it does with what was restored.
pub struct Case {
    pub what: &'static str,
    pub script: String,
    pub then: &'static str,
}

fn case(what: &'static str, script: impl Into<String>, then: &'static str) -> Case {
    Case {
        what,
        script: script.into(),
        then,
    }
}

/// Two commits on two branches that want the same line.
const CONFLICT: &str = "git checkout -qb side origin/main; echo theirs > README; git commit -qam theirs; \
     git checkout -q feat; echo ours > README; git commit -qam ours";

const NAMES: &str = "printf a > \"$(printf 'new\\nline')\"; printf b > \"$(printf 'not\\377text')\"; printf c > -dash; \
     printf d > 'with space'; printf e > 'tab\there'; mkdir -p 'ünï/cödé'; printf f > 'ünï/cödé/\"quoted\"'; \
     printf g > back\\\\slash; printf h > .gitkeep; l=$(printf '%0100d' 1); mkdir -p $l/$l/$l; printf i > $l/$l/$l/$l";

const SUBMODULE: &str = "git init -q $TOP/sub; echo s > $TOP/sub/s; git -C $TOP/sub add s; git -C $TOP/sub commit -qm s; \
     git -c protocol.file.allow=always submodule --quiet add file://$TOP/sub lib; git commit -qm lib; \
     cd lib; echo local > l; git add l; git commit -qm local; echo dirty >> s; echo free > f; cd ..; \
     git -C lib stash list >/dev/null";

pub fn cases() -> Vec<Case> {
    vec![
        case("a tracked file is edited", EDIT, ""),
        case(
            "an edit is staged, and another is not",
            format!("{EDIT}; git add README; {EDIT}"),
            "",
        ),
        case("a file is deleted", "rm README", ""),
        case(
            "a file is deleted in the index",
            "git rm -q --cached README",
            "",
        ),
        case(
            "a mode is changed",
            "chmod +x README; chmod 600 other/file",
            "",
        ),
        case("a file became a link", "ln -sf /etc README", ""),
        case(
            "a file became a directory",
            "rm README; mkdir README; echo x > README/f",
            "",
        ),
        case(
            "a file is meant to be added",
            "echo x > n; git add -N n",
            "git commit -qam n",
        ),
        case("files of any name", NAMES, ""),
        case(
            "tracked files of any name",
            format!("{NAMES}; git add -A; git commit -qm names; echo more >> -dash"),
            "",
        ),
        case(
            "modes, links and empty directories",
            "echo x > a; chmod 600 a; echo x > b; chmod 755 b; echo x > c; chmod 400 c; ln -s nowhere dangling; \
             ln -s /etc/hosts outward; ln -s .. up; mkdir -p empty/deep; mkdir sealed; echo x > sealed/f; chmod 500 sealed; \
             touch -d '2001-02-03 04:05:06.123456789' a; touch -h -d 1999-01-01 dangling; touch -d 2010-10-10 empty",
            "",
        ),
        case(
            "ignored files",
            "echo secret > .env; mkdir -p out/deep; echo x > out/deep/f; mkdir out/empty; echo y > out/y",
            "",
        ),
        case(
            "an edit behind skip-worktree",
            format!("git update-index --skip-worktree README; {EDIT}"),
            "",
        ),
        case(
            "an edit behind assume-unchanged",
            format!("git update-index --assume-unchanged README; {EDIT}"),
            "",
        ),
        case(
            "a split index with an edit",
            format!(
                "git update-index --split-index; {EDIT}; git add README; git commit -qm e; echo x > other/file; git add other/file"
            ),
            "git commit -qm f; git status --porcelain | wc -l | grep -qx 0",
        ),
        case(
            "an index of version 4",
            format!("git update-index --index-version 4; {EDIT}; git add -A"),
            "",
        ),
        case(
            "line endings and attributes",
            "printf '*.txt text eol=crlf\\n*.id ident\\nmixed text=auto\\n*.u working-tree-encoding=UTF-16\\n' > .gitattributes; \
             printf 'a\\r\\nb\\r\\n' > crlf.txt; printf '$Id$\\n' > x.id; printf 'a\\r\\nb\\n' > mixed; \
             printf 'h\\0e\\0' > raw.u; git add .gitattributes crlf.txt x.id mixed; git commit -qm attributes; \
             rm x.id crlf.txt; git checkout -q -- x.id crlf.txt; printf 'c\\nd\\r\\n' > crlf.txt",
            "",
        ),
        case(
            "a commit on the branch",
            COMMIT,
            "git push -q origin HEAD:refs/heads/feat",
        ),
        case(
            "a commit on a detached HEAD",
            format!("git checkout -q --detach; {COMMIT}"),
            "",
        ),
        case(
            "a commit that only the reflog knows",
            format!("{COMMIT}; git reset -q --hard HEAD~1"),
            "git reset -q --hard HEAD@{1}; test -f work",
        ),
        case(
            "commits on other branches made here",
            format!(
                "git checkout -qb other; {COMMIT}; git checkout -qb a/b; echo 2 >> work; git commit -qam 2; git checkout -q feat"
            ),
            "git checkout -q a/b; grep -q 2 work",
        ),
        case(
            "a branch that was renamed",
            format!("git branch -m renamed; {COMMIT}"),
            "",
        ),
        case(
            "two stash entries",
            format!("{EDIT}; git stash -qm one; echo x > n; git stash -q -u -m two; {COMMIT}"),
            "git stash pop -q; test -f n; git stash pop -q; grep -q more README",
        ),
        case(
            "a stash on a detached HEAD",
            format!("git checkout -q --detach; {EDIT}; git stash push -q -- README"),
            "git stash apply -q",
        ),
        case(
            "a merge that stopped at a conflict",
            format!("{CONFLICT}; git merge side >/dev/null 2>&1 || true"),
            "echo both > README; git add README; git merge --continue >/dev/null; git rev-parse -q --verify HEAD^2",
        ),
        case(
            "a rebase that stopped at a conflict",
            format!(
                "{CONFLICT}; echo x > n; git add n; git commit -qm n; git rebase side >/dev/null 2>&1 || true"
            ),
            "echo both > README; git add README; git rebase --continue >/dev/null 2>&1; test -f n; git symbolic-ref HEAD | grep -q feat",
        ),
        case(
            "an interactive rebase with an edit and an autostash",
            format!(
                "{COMMIT}; echo 2 > two; git add two; git commit -qm two; echo dirty >> other/file; \
                 GIT_SEQUENCE_EDITOR=\"sed -i 1s/pick/edit/\" git rebase -q -i --autostash HEAD~2 >/dev/null 2>&1; echo amended >> work"
            ),
            "git commit -q --amend -a --no-edit; git rebase --continue >/dev/null 2>&1; test -f two; grep -q amended work; grep -q dirty other/file",
        ),
        case(
            "a rebase that stopped with a clean tree",
            format!(
                "{COMMIT}; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1 >/dev/null 2>&1"
            ),
            "git rebase --continue >/dev/null 2>&1; test -f work",
        ),
        case(
            "a cherry-pick of two that stopped",
            format!(
                "{CONFLICT}; git checkout -q side; echo s > s; git add s; git commit -qm s; git checkout -q feat; git cherry-pick side~1 side >/dev/null 2>&1 || true"
            ),
            "echo both > README; git add README; git cherry-pick --continue >/dev/null; test -f s",
        ),
        case(
            "a revert that stopped",
            "echo b > README; git commit -qam b; echo c > README; git commit -qam c; git revert HEAD~1 >/dev/null 2>&1 || true",
            "echo d > README; git add README; git revert --continue >/dev/null",
        ),
        case(
            "a bisection",
            "for n in 1 2 3 4; do echo $n > n; git add n; git commit -qm $n; done; git bisect start -q >/dev/null; \
             git bisect bad >/dev/null; git bisect good HEAD~4 >/dev/null",
            "git bisect good >/dev/null; git bisect reset >/dev/null 2>&1; git symbolic-ref HEAD | grep -q feat",
        ),
        case(
            "patches that did not apply",
            "echo p > p; git add p; git commit -qm p; git format-patch -q -1 --stdout > $TOP/p; git reset -q --hard HEAD~1; \
             echo q > p; git add p; git commit -qm q; git am -q $TOP/p >/dev/null 2>&1 || true",
            "git am --skip >/dev/null",
        ),
        case(
            "an orphan branch without a commit",
            "git checkout -q --orphan fresh; git rm -rfq .; echo x > f; git add f; echo y > g",
            "git commit -qm first; git rev-parse HEAD >/dev/null",
        ),
        case(
            "a sparse checkout with an edit",
            "git sparse-checkout set --cone src >/dev/null; echo more >> src/lib/deep.txt; echo x > src/new",
            "git sparse-checkout disable >/dev/null; test -f other/file",
        ),
        case(
            "a sparse index",
            "git sparse-checkout set --cone --sparse-index src >/dev/null; echo more >> src/lib/deep.txt; git add -A",
            "git commit -qm more; git sparse-checkout disable; test -f other/file",
        ),
        case(
            "repositories nested in ignored and other directories",
            "mkdir -p node_modules/x vendor; for d in node_modules/x vendor/y; do git init -q $d; echo n > $d/n; \
             git -C $d add n; git -C $d commit -qm nested; echo dirty >> $d/n; done; git init -q --bare node_modules/bare; \
             git -C vendor/y push -q ../../node_modules/bare HEAD:refs/heads/main",
            "git -C node_modules/x log -1 --format=%s | grep -qx nested; git -C vendor/y fsck >/dev/null 2>&1; git -C node_modules/bare log -1 main >/dev/null",
        ),
        case(
            "a submodule with a commit, an edit and a file",
            SUBMODULE,
            "git -C lib log -1 --format=%s | grep -qx local; git -C lib commit -qam more",
        ),
        case(
            "tags made here",
            format!(
                "{COMMIT}; git tag light; git tag -a -m heavy heavy; git reset -q --hard HEAD~1"
            ),
            "git rev-parse HEAD@{1}^{commit} >/dev/null",
        ),
        case(
            "a worktree's own ref",
            format!("{COMMIT}; git update-ref refs/worktree/mine HEAD; git reset -q --hard HEAD~1"),
            "git log -1 refs/worktree/mine >/dev/null",
        ),
    ]
}

/// Much of it at once; the last leaves a conflict.
pub fn all_together() -> Case {
    case(
        "all together",
        format!(
            "{SUBMODULE}; {NAMES}; echo secret > .env; mkdir -p node_modules/x empty/deep out; git init -q node_modules/x; \
             echo n > node_modules/x/n; git -C node_modules/x add n; git -C node_modules/x commit -qm n; \
             git update-index --skip-worktree other/file; echo hidden >> other/file; \
             echo x > src/s; git add src/s; git stash push -q -m one -- src/s; ln -s nowhere dangling; echo x > out/f; \
             git checkout -q --detach; echo d > d; git add d; git commit -qm detached; git checkout -q feat; \
             {CONFLICT}; git merge side >/dev/null 2>&1 || true; echo staged > st; git add st; echo more >> st; chmod 755 st"
        ),
        "echo both > README; git add README; git merge --continue >/dev/null; git stash pop -q; test -f src/s",
    )
}

/// Does the same for every case and both strategies, a few at a time, and says
/// of all of them which failed.
async fn for_each<F: Future<Output = ()> + Send + 'static>(each: impl Fn(Strategy, Case) -> F) {
    const AT_ONCE: usize = 4;
    let mut failed = Vec::new();
    let mut waiting: VecDeque<(String, JoinHandle<()>)> = VecDeque::new();
    for strategy in STRATEGIES {
        for case in cases().into_iter().chain([all_together()]) {
            if waiting.len() == AT_ONCE
                && let Some((what, one)) = waiting.pop_front()
                && one.await.is_err()
            {
                failed.push(what);
            }
            let what = named(strategy, case.what);
            waiting.push_back((what, tokio::spawn(each(strategy, case))));
        }
    }
    for (what, one) in waiting {
        if one.await.is_err() {
            failed.push(what);
        }
    }
    assert_eq!(failed, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_work_comes_back_as_it_was_and_can_be_gone_on_with() {
    for_each(|strategy, case| async move {
        let what = named(strategy, case.what);
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(&case.script);
        let before = Picture::of(&world);
        assert!(before.files() > 0, "{what}");
        // What can be made again is not in anybody's way, and does not come back.
        world.agent(
            "if [ -f .gitignore ]; then mkdir -p target/made; echo x > target/made/f; echo x > m.pyc; fi",
        );
        let archive = world.archive(&what).await;
        assert!(!archive.reasons.is_empty(), "{what}");
        world.forget_unreachable();
        world.is_restored(&archive, &what).await;
        before.is_same(&Picture::of(&world), &what);
        fixture.git(&world.record.path, &["fsck", "--no-dangling"]);
        // It can go a second time, and come back again.
        let again = world.archive(&what).await;
        world.forget_unreachable();
        world.is_restored(&again, &what).await;
        before.is_same(&Picture::of(&world), &what);
        world.agent(case.then);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_inside_of_a_clone_comes_back_with_what_is_staged_in_it() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Clone).await;
    world.agent(
        "git worktree add -q --detach inner; cd inner; echo c > c; git add c; git commit -qm c; \
         echo staged > s; git add s; echo more >> s",
    );
    let inner = world.record.path.join("inner");
    let admin = world.admin().join("worktrees/inner");
    let before = (Picture::of(&world), Picture::at(&fixture, &inner, &admin));
    let archive = world.archive("inner").await;
    world.is_restored(&archive, "inner").await;
    before.0.is_same(&Picture::of(&world), "outer");
    before
        .1
        .is_same(&Picture::at(&fixture, &inner, &admin), "inner");
    world.agent("git -C inner show :s | grep -qx staged; git fsck --no-dangling");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_branch_comes_back_with_it() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(&format!("{COMMIT}; git reset -q --hard HEAD~1; {COMMIT}"));
    let log = |world: &World<'_>| {
        fixture.git(
            &world.record.path,
            &["reflog", "show", "refs/heads/feat", "--format=%H %gs"],
        )
    };
    let before = log(&world);
    assert!(before.lines().count() >= 3, "{before}");
    let archive = world.archive("log").await;
    world.is_restored(&archive, "log").await;
    assert_eq!(log(&world), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_comes_back_as_a_repository_that_stands_alone() {
    for_each(|strategy, case| async move {
        let what = named(strategy, case.what);
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        world.agent(&case.script);
        let before = Picture::of(&world);
        let archive = world.archive(&what).await;
        let to = fixture.path().join("elsewhere/standing alone");
        std::fs::create_dir_all(&to).expect("made");
        let restored = world
            .workspace
            .restore_to(&archive.id, &to, &world.cancel)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(restored.differs, [""; 0], "{what}");
        assert_eq!((restored.record, &restored.path), (None, &to), "{what}");
        // It does without everything it was made of.
        std::fs::rename(world.root(), fixture.path().join("away")).expect("renamed");
        let after = Picture::at(&fixture, &to, &git_dir(&to));
        // The own pointers of submodules differ, and what was shared with others.
        let except: &[&str] = match strategy {
            Strategy::Worktree => &["config", "for-each-ref"],
            Strategy::Clone => &[],
        };
        before
            .without_pointers()
            .is_same_but(&after.without_pointers(), &what, except);
        fixture.git(&to, &["fsck", "--no-dangling"]);
    })
    .await;
}
