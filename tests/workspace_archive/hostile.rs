//! What an agent may have planted is archived as data, and never runs.

use std::fs;
use std::os::unix::fs::symlink;

use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::Strategy;
use innkeeper::workspace::Cleanup;

use crate::git_fixture::Fixture;
use crate::picture::named;
use crate::world::{STRATEGIES, World, names_in};

const PLANTED: &str = "
evil=$TOP/evil; printf '#!/bin/sh\\necho \"$0 $@\" >> %s/ran\\ncat\\n' $TOP > $evil; chmod +x $evil
common=$(cd $(git rev-parse --git-common-dir); pwd); own=$(cd $(git rev-parse --git-dir); pwd)
git init -q $TOP/sub; echo s > $TOP/sub/s; git -C $TOP/sub add s; git -C $TOP/sub commit -qm s
git -c protocol.file.allow=always submodule --quiet add file://$TOP/sub lib; git commit -qm lib
git init -q nested; echo x > nested/f; git -C nested add f; git -C nested commit -qm f
echo more >> README; git stash -qm stashed; echo more >> README; git add README; echo x > free; echo secret > .env
printf '* filter=evil diff=evil merge=evil ident\\n' > .gitattributes
mkdir -p $common/info; printf '* filter=evil\\n' > $common/info/attributes
for repo in $common $(git -C lib rev-parse --absolute-git-dir) nested/.git; do
  mkdir -p $repo/hooks
  for hook in post-checkout pre-commit post-index-change reference-transaction post-merge pre-auto-gc; do cp $evil $repo/hooks/$hook; done
  for key in core.fsmonitor core.sshCommand core.editor core.pager core.askPass credential.helper gpg.program \
      filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.textconv diff.external merge.evil.driver \
      uploadpack.packObjectsHook core.alternateRefsCommand; do
    printf '[%s]\\n\\t%s = %s\\n' \"$(echo $key | sed 's/\\.[^.]*$//; s/^\\([a-z]*\\)\\.\\(.*\\)/\\1 \"\\2\"/')\" \"${key##*.}\" $evil >> $repo/config
  done
  printf '[filter \"evil\"]\\n\\trequired = true\\n[core]\\n\\thooksPath = %s/hooks\\n' $repo >> $repo/config
done
rm -f $TOP/ran";

/// That any of it runs for somebody who is not careful.
const CONTROL: &str = "git status >/dev/null 2>&1 || true; test -s $TOP/ran; rm $TOP/ran; \
     git -C lib status >/dev/null 2>&1 || true; test -s $TOP/ran; rm $TOP/ran";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_planted_runs_on_the_way_out_or_back() {
    for strategy in STRATEGIES {
        let what = named(strategy, "planted");
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(PLANTED);
        world.agent(CONTROL);
        let ran = fixture.path().join("ran");
        assert!(!ran.exists());
        let outcome = world.cleanup(&AtRisk::Archive).await;
        let Ok(Cleanup::Cleaned {
            archive: Some(archive),
            ..
        }) = outcome
        else {
            panic!("{what}: {outcome:?}");
        };
        world.is_gone(&what).await;
        let told = || fs::read_to_string(&ran).unwrap_or_default();
        assert!(!ran.exists(), "{what}: {}", told());
        let restored = world.restore(&archive.id).await.expect("restored");
        assert!(!ran.exists(), "{what}: {}", told());
        // What runs in a submodule's repository is the only thing that is another.
        for why in &restored.differs {
            assert!(why.contains("modules/lib/config"), "{what}: {why}");
        }
        world.record = restored.record.expect("a checkout");
        if strategy == Strategy::Clone {
            assert_eq!(names_in(&world.admin().join("hooks")), [""; 0]);
            let config = fs::read_to_string(world.admin().join("config")).expect("read");
            assert!(!config.contains("evil"), "{config}");
        }
        let modules = world.admin().join("modules/lib");
        let config = fs::read_to_string(modules.join("config")).expect("read");
        assert!(
            !config.contains("evil") && config.contains("worktree"),
            "{config}"
        );
        assert!(!modules.join("hooks").exists());
        let to = fixture.path().join("to");
        world
            .workspace
            .restore_to(&archive.id, &to, &world.cancel)
            .await
            .expect("restored");
        assert!(!ran.exists(), "{what}: {}", told());
        let config = fs::read_to_string(to.join(".git/config")).expect("read");
        assert!(!config.contains("evil"), "{config}");
        for (path, text) in [(".env", "secret\n"), ("free", "x\n"), ("nested/f", "x\n")] {
            assert_eq!(fs::read_to_string(to.join(path)).expect("read"), text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_where_archives_belong_is_not_followed() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent("echo x > n");
    let outside = fixture.path().join("outside");
    fs::create_dir(&outside).expect("made");
    symlink(&outside, world.root().join(".archive")).expect("linked");
    let outcome = world.cleanup(&AtRisk::Archive).await.expect("answered");
    assert!(matches!(outcome, Cleanup::Kept { .. }), "{outcome:?}");
    assert!(world.record.path.join("n").exists());
    world.is_tidy("a link");
    for dir in names_in(&outside) {
        assert_eq!(names_in(&outside.join(dir)), [""; 0]);
    }
}
