//! A full disk while an archive is made or restored. File systems are mounted,
//! which needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::reason::KeepReason::{ArchiveFailed, ProbeFailed};
use innkeeper::workspace::Cleanup;
use innkeeper::workspace::journal::Phase;

use crate::git_fixture::Fixture;
use crate::picture::{Picture, named};
use crate::world::{STRATEGIES, World};

/// A small file system; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, options: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems and needs root"
        );
        std::fs::create_dir_all(at).expect("a directory");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status()
            .expect("mount runs");
        assert!(status.success(), "a tmpfs at {}", at.display());
        Self(at.to_owned())
    }

    /// Takes all but so many bytes; returns the file that takes them.
    fn fill_but(&self, left: u64) -> PathBuf {
        use std::io::Write;
        let ballast = self.0.join("ballast");
        let mut file = std::fs::File::create(&ballast).expect("a file");
        let stat = rustix::fs::statvfs(&self.0).expect("examined");
        let block = [b'x'; 4096];
        for _ in 0..(stat.f_bavail * stat.f_frsize).saturating_sub(left) / 4096 {
            file.write_all(&block).expect("there is space");
        }
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _still_in_use = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_root_a_disk_that_is_full_at_any_point_keeps_the_checkout_and_the_archive() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let small = Small::mount(&fixture.root(), "size=40m");
        let mut world = World::new(&fixture, strategy).await;
        world.agent(
            "head -c 400000 /dev/urandom > n; head -c 300000 /dev/urandom > c; git add c; git commit -qm c; echo x > .env",
        );
        let before = Picture::of(&world);
        let mut refused = 0;
        for left in [0, 64, 200, 350, 600, 900, 1200, 1800] {
            let what = named(strategy, &format!("{left} KiB left"));
            let ballast = small.fill_but(left * 1024);
            let outcome = world.cleanup(&AtRisk::Archive).await;
            std::fs::remove_file(ballast).expect("removed");
            match outcome {
                Ok(Cleanup::Cleaned { .. }) => {
                    assert!(left >= 900, "{what}");
                    break;
                }
                Ok(Cleanup::Kept { reasons, .. }) => {
                    let told = reasons
                        .iter()
                        .any(|one| [ArchiveFailed, ProbeFailed].contains(&one.code));
                    assert!(told, "{what}: {reasons:?}");
                }
                Ok(other) => panic!("{what}: {other:?}"),
                Err(_) => {}
            }
            refused += 1;
            // What could not be settled while the disk was full is by the next.
            let kept = world.cleanup(&AtRisk::Keep).await.expect("answered");
            assert!(matches!(kept, Cleanup::Kept { .. }), "{what}: {kept:?}");
            assert_eq!(world.journal(), Some(Phase::Ready), "{what}");
            before.is_same(&Picture::of(&world), &what);
            world.has_no_archive(&what).await;
        }
        assert!(refused >= 3, "{refused}");
        let archive = if world.record.path.exists() {
            world.archive("space").await
        } else {
            world.workspace.archives().await.expect("listed").remove(0)
        };
        world.workspace.sweep_trash().await.expect("swept");
        for left in [0, 64, 400, 700] {
            let what = named(strategy, &format!("back with {left} KiB left"));
            let ballast = small.fill_but(left * 1024);
            let restored = world.restore(&archive.id).await;
            std::fs::remove_file(ballast).expect("removed");
            if let Ok(restored) = restored {
                world.record = restored.record.expect("a checkout");
                break;
            }
            assert!(!world.record.path.exists(), "{what}");
        }
        if !world.record.path.exists() {
            world.is_restored(&archive, "space").await;
        }
        before.is_same(&Picture::of(&world), "restored");
        drop(world);
        drop(small);
    }
}
