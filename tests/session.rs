//! Sessions with the real binary as launcher and real commands.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use innkeeper::domain::code::FailureCode;
use innkeeper::domain::log_event::ExitStatus;
use innkeeper::process::tree::{self, Identity};
use innkeeper::session::end::members;
use innkeeper::session::{
    DirectoryIdentity, Ended, LaunchSpec, Launched, RunFiles, RunState, SessionError, end, launch,
    observe, wait,
};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

const BINARY: &str = env!("CARGO_BIN_EXE_innkeeper");
/// Not the tester's own, some of which another user may not search.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const DEADLINE: Duration = Duration::from_mins(1);

/// A state directory and a checkout; at the end nothing of its session runs.
struct Inn {
    dir: tempfile::TempDir,
    session: String,
}

impl Inn {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        fs::create_dir(dir.path().join("checkout")).expect("made");
        let session = uuid::Uuid::now_v7().to_string();
        Self { dir, session }
    }

    fn checkout(&self) -> PathBuf {
        self.dir.path().join("checkout")
    }

    fn files(&self) -> RunFiles {
        self.run(1)
    }

    fn run(&self, run: u32) -> RunFiles {
        RunFiles::new(self.dir.path().join("sessions"), &self.session, run).expect("a plain id")
    }

    fn spec(&self, command: &[&str]) -> LaunchSpec {
        LaunchSpec {
            launcher: BINARY.into(),
            files: self.files(),
            directory: self.checkout(),
            identity: Some(identity(&self.checkout())),
            command: command.iter().map(|&word| word.into()).collect(),
            environment: BTreeMap::from([
                ("PATH".into(), PATH.into()),
                ("SECRET".into(), "hush-hush".into()),
            ]),
            log_bytes: 1 << 20,
        }
    }

    fn script(&self, script: &str) -> LaunchSpec {
        self.spec(&["sh", "-c", script])
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files().log()).unwrap_or_default()
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.checkout().join(name)).unwrap_or_default()
    }

    async fn over(&self) -> RunState {
        over(&self.files()).await
    }
}

impl Drop for Inn {
    fn drop(&mut self) {
        // For tests that fail half-way; the others have ended their session.
        for process in tree::all() {
            if tree::has_mark(&process, "INNKEEPER_SESSION_ID", &self.session) {
                process.identity().signal(Signal::KILL);
            }
        }
    }
}

fn identity(path: &Path) -> DirectoryIdentity {
    let metadata = fs::metadata(path).expect("it is there");
    DirectoryIdentity {
        inode: metadata.ino(),
        device: metadata.dev(),
        boot_id: tree::boot_id().to_owned(),
    }
}

async fn over(files: &RunFiles) -> RunState {
    tokio::time::timeout(DEADLINE, wait(files, &CancellationToken::new()))
        .await
        .unwrap_or_else(|_| panic!("the run is not over but {:?}", observe(files)))
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn start(spec: &LaunchSpec) -> Launched {
    launch(spec).await.expect("it starts")
}

async fn end_now(files: &RunFiles, grace: Duration) -> Ended {
    tokio::time::timeout(DEADLINE, end(files, grace))
        .await
        .expect("ending is bounded")
}

fn is_exit(state: &RunState, expected: ExitStatus) -> bool {
    matches!(state, RunState::Exited { status, ended_at } if *status == expected && *ended_at > 0)
}

fn launcher_of(files: &RunFiles) -> Identity {
    let text = fs::read(files.started()).expect("it is claimed");
    let claim: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
    serde_json::from_value(claim["launcher"].clone()).expect("it names the launcher")
}

fn processes_below(pid: i32) -> Vec<tree::Process> {
    let all = tree::all();
    tree::descendants(&all, pid).into_iter().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_its_checkout_with_its_environment_and_leaves_log_and_status() {
    let inn = Inn::new();
    let spec = inn.script("pwd -P; echo to-stderr >&2; env | sort; cat; exit 7");
    let launched = start(&spec).await;
    assert!(launched.is_new);
    let state = inn.over().await;
    assert!(is_exit(&state, ExitStatus::Code(7)), "{state:?}");
    let log = inn.log();
    let checkout = fs::canonicalize(inn.checkout()).expect("it is there");
    assert!(log.starts_with(checkout.to_str().expect("plain")), "{log}");
    for line in [
        "to-stderr",
        "SECRET=hush-hush",
        &format!("INNKEEPER_SESSION_ID={}", inn.session),
    ] {
        assert!(log.lines().any(|one| one == line), "{line}: {log}");
    }
    let own = [
        "PATH",
        "SECRET",
        "INNKEEPER_SESSION_ID",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    for line in log.lines().filter(|line| line.contains('=')) {
        let name = line.split('=').next().unwrap_or_default();
        assert!(own.contains(&name), "{name} came from somewhere else");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_holds_the_environment_and_all_are_for_the_owner_alone() {
    let inn = Inn::new();
    start(&inn.script("exit 0")).await;
    inn.over().await;
    let mut count = 0;
    for entry in fs::read_dir(inn.files().directory()).expect("readable") {
        let path = entry.expect("readable").path();
        let text = fs::read_to_string(&path).expect("readable");
        assert!(!text.contains("hush-hush"), "{}", path.display());
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 4, "log, spec, started, exit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_recorded_as_one_and_signals_have_their_usual_meaning() {
    for (name, number) in [("TERM", 15), ("PIPE", 13), ("HUP", 1), ("INT", 2)] {
        let inn = Inn::new();
        start(&inn.script(&format!("kill -s {name} $$; exit 3"))).await;
        let state = inn.over().await;
        assert!(
            is_exit(&state, ExitStatus::Signal(number)),
            "{name}: {state:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_launched_many_times_at_once_starts_once() {
    let inn = Inn::new();
    let spec = inn.script("echo started >> starts; exec sleep 600");
    let launches: Vec<_> = (0..6)
        .map(|_| {
            let spec = spec.clone();
            tokio::spawn(async move { launch(&spec).await })
        })
        .collect();
    let mut states = Vec::new();
    let mut new = 0;
    for one in launches {
        let launched = one
            .await
            .expect("no panic")
            .expect("each is told of the one");
        new += usize::from(launched.is_new);
        states.push(launched.state);
    }
    assert_eq!(new, 1);
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    let again = start(&spec).await;
    assert!(!again.is_new);
    end_now(&inn.files(), Duration::from_secs(5)).await;
    let after = start(&spec).await;
    assert!(is_exit(&after.state, ExitStatus::Signal(15)), "{after:?}");
    assert_eq!(inn.file("starts"), "started\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn later_runs_have_files_of_their_own_and_share_the_log() {
    let inn = Inn::new();
    start(&inn.script("echo one")).await;
    inn.over().await;
    let mut second = inn.script("echo two; exit 2");
    second.files = inn.run(2);
    start(&second).await;
    assert!(is_exit(&over(&second.files).await, ExitStatus::Code(2)));
    assert!(is_exit(&observe(&inn.files()), ExitStatus::Code(0)));
    assert_eq!(inn.log(), "one\ntwo\n");
}

/// Not a test by itself: what the next one kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test as its child"]
async fn helper_that_launches_and_is_killed() {
    let Some(root) = std::env::var_os("INN_ROOT") else {
        return;
    };
    let session = std::env::var("INN_SESSION").expect("given with the root");
    let root = PathBuf::from(root);
    let spec = LaunchSpec {
        launcher: BINARY.into(),
        files: RunFiles::new(root.join("sessions"), session, 1).expect("a plain id"),
        directory: root.join("checkout"),
        identity: None,
        command: [
            "sh",
            "-c",
            "echo before; read line < go; echo after; exit 5",
        ]
        .map(String::from)
        .into(),
        environment: BTreeMap::from([("PATH".into(), PATH.into())]),
        log_bytes: 1 << 20,
    };
    launch(&spec).await.expect("it starts");
    fs::write(root.join("launched"), "").expect("written");
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_the_daemon_that_is_killed_with_its_whole_group() {
    let inn = Inn::new();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        inn.checkout().join("go"),
        rustix::fs::Mode::RWXU,
    )
    .expect("a FIFO can be made");
    let mut daemon = tokio::process::Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "helper_that_launches_and_is_killed", "--ignored"])
        .env("INN_ROOT", inn.dir.path())
        .env("INN_SESSION", &inn.session)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("this test can run itself");
    until("the launch", || {
        inn.dir.path().join("launched").exists().then_some(())
    })
    .await;
    let group = i32::try_from(daemon.id().expect("it runs")).expect("a pid fits");
    let group = rustix::process::Pid::from_raw(group).expect("a pid is positive");
    for signal in [Signal::HUP, Signal::INT, Signal::KILL] {
        // The group may be gone after the first.
        let _ = rustix::process::kill_process_group(group, signal);
    }
    daemon.wait().await.expect("it is killed");

    let files = inn.files();
    assert!(
        matches!(observe(&files), RunState::Running { .. }),
        "{:?}",
        observe(&files)
    );
    let go = inn.checkout().join("go");
    tokio::task::spawn_blocking(move || fs::write(go, "go\n"))
        .await
        .expect("no panic")
        .expect("the command reads it");
    assert!(is_exit(&inn.over().await, ExitStatus::Code(5)));
    assert_eq!(inn.log(), "before\nafter\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_launcher_disregards_signals_that_ask_to_end_and_leads_its_own_session() {
    let inn = Inn::new();
    start(&inn.script("exec sleep 600")).await;
    let launcher = launcher_of(&inn.files());
    let look = launcher.look().expect("it runs");
    assert_eq!(look.session, launcher.pid);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT] {
        assert!(launcher.signal(signal));
    }
    let ended = end_now(&inn.files(), Duration::from_secs(5)).await;
    assert!(is_exit(&ended.state, ExitStatus::Signal(15)), "{ended:?}");
    assert!(!ended.was_killed && ended.remaining.is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_session_started_is_ended_wherever_it_went() {
    let inn = Inn::new();
    let script = "\
        (trap '' TERM HUP; echo stubborn >> here; while :; do sleep 1; done) & \
        setsid sh -c 'echo setsid >> here; exec sleep 600' & \
        (setsid sh -c 'trap \"\" TERM; echo orphan >> here; while :; do sleep 1; done' &) ; \
        env -i setsid /bin/sh -c '(/bin/sleep 600 & /bin/sleep 600) & echo bare >> here; exec /bin/sleep 600' & \
        sh -c 'echo stopped >> here; kill -s STOP $$; sleep 600' & \
        wait";
    start(&inn.script(script)).await;
    until("all five", || {
        (inn.file("here").lines().count() == 5).then_some(())
    })
    .await;
    let launcher = launcher_of(&inn.files());
    let below: Vec<Identity> = processes_below(launcher.pid)
        .iter()
        .map(tree::Process::identity)
        .collect();
    assert!(below.len() >= 8, "{below:?}");
    let ended = end_now(&inn.files(), Duration::from_millis(300)).await;
    assert!(ended.remaining.is_empty(), "{ended:?}");
    assert!(ended.was_killed, "two of them disregard SIGTERM");
    let alive: Vec<_> = below.iter().filter(|one| one.is_alive()).collect();
    assert!(alive.is_empty(), "{alive:?}");
    assert!(!launcher.is_alive(), "it ends when all is gone");
    assert!(ended.state.is_over());
    assert!(members(&inn.files()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_outlived_a_killed_launcher_is_still_found_and_the_run_is_lost() {
    let inn = Inn::new();
    start(&inn.script("setsid sleep 600 & exec sleep 600")).await;
    let files = inn.files();
    until("both", || {
        (processes_below(launcher_of(&files).pid).len() == 2).then_some(())
    })
    .await;
    let launcher = launcher_of(&files);
    assert!(launcher.signal(Signal::KILL));
    launcher.wait_gone().await;
    assert!(
        matches!(observe(&files), RunState::Running { .. }),
        "the command goes on"
    );
    let ended = end_now(&files, Duration::from_secs(5)).await;
    assert_eq!(ended.state, RunState::Lost);
    assert!(ended.remaining.is_empty());
    let again = start(&inn.script("echo never > second")).await;
    assert_eq!(
        again.state,
        RunState::Lost,
        "a lost run is not started again"
    );
    assert_eq!(inn.file("second"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn background_processes_delay_neither_the_status_nor_are_they_forgotten() {
    let inn = Inn::new();
    start(&inn.script("echo hello; sleep 600 & exit 4")).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(4)));
    assert_eq!(
        inn.log(),
        "hello\n",
        "what it wrote is there with the status"
    );
    assert_eq!(members(&inn.files()).await.len(), 1);
    let ended = end_now(&inn.files(), Duration::from_secs(5)).await;
    assert!(is_exit(&ended.state, ExitStatus::Code(4)), "{ended:?}");
    assert!(members(&inn.files()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_that_never_stops_writing_does_not_delay_the_status() {
    let inn = Inn::new();
    start(&inn.script("yes & exit 0")).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(0)));
    end_now(&inn.files(), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_closes_its_output_is_accompanied_to_its_end() {
    let inn = Inn::new();
    start(&inn.script("exec >&- 2>&-; sleep 0.2; exit 6")).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_bounded_and_the_command_is_not_held_up() {
    let inn = Inn::new();
    let mut spec = inn.script("head -c 3000000 /dev/zero | tr '\\0' x; echo done > done; exit 0");
    spec.log_bytes = 100_000;
    start(&spec).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(0)));
    assert_eq!(inn.file("done"), "done\n");
    let log = inn.log();
    assert!(log.len() < 100_200, "{}", log.len());
    assert!(
        log.ends_with("[innkeeper: this log has reached 100000 bytes; what follows is not kept]\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_log_does_not_end_the_command() {
    let inn = Inn::new();
    fs::create_dir_all(inn.files().directory()).expect("made");
    std::os::unix::fs::symlink("/dev/full", inn.files().log()).expect("made");
    start(&inn.script("echo lost; echo more; echo done > done")).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(0)));
    assert_eq!(inn.file("done"), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_never_runs_in_another_place() {
    let inn = Inn::new();
    let spec = inn.script("touch ran");
    fs::rename(inn.checkout(), inn.dir.path().join("moved")).expect("moved");
    let missing = launch(&spec).await.expect_err("the directory is gone");
    assert!(
        matches!(missing, SessionError::NotStarted { .. }),
        "{missing:?}"
    );
    assert!(
        missing.to_string().contains("cannot be entered"),
        "{missing}"
    );
    assert_eq!(missing.code(), FailureCode::SessionStartFailed);

    fs::create_dir(inn.checkout()).expect("made");
    let mut second = spec.clone();
    second.files = inn.run(2);
    let replaced = launch(&second)
        .await
        .expect_err("another directory stands there");
    assert!(replaced.to_string().contains("not the one"), "{replaced}");

    fs::remove_dir(inn.checkout()).expect("empty");
    fs::write(inn.checkout(), "").expect("written");
    let mut third = spec.clone();
    third.files = inn.run(3);
    launch(&third).await.expect_err("a file is no directory");

    for dir in [inn.checkout(), inn.dir.path().join("moved")] {
        assert!(!dir.join("ran").exists(), "{}", dir.display());
    }
    assert!(
        matches!(observe(&inn.files()), RunState::FailedToStart(_)),
        "the run is over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_be_started_says_why() {
    let long = "x".repeat(200_000);
    let table: [(&[&str], &str); 6] = [
        (&["echo", &long], "too long"),
        (&["echo", "a\0b"], "nul byte"),
        (&["no-such-program-anywhere"], "no such program"),
        (&["./not-executable"], "Permission denied"),
        (&["./bad-interpreter"], "interpreter"),
        (&[""], "cannot be started"),
    ];
    for (command, words) in table {
        let inn = Inn::new();
        fs::write(inn.checkout().join("not-executable"), "#!/bin/sh\n").expect("written");
        let script = inn.checkout().join("bad-interpreter");
        fs::write(&script, "#!/no/such/interpreter\n").expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
        let error = launch(&inn.spec(command))
            .await
            .expect_err("it cannot start");
        assert!(error.to_string().contains(words), "{command:?}: {error}");
        assert!(
            matches!(observe(&inn.files()), RunState::FailedToStart(reason) if reason.contains(words))
        );
        let again = launch(&inn.spec(&["true"])).await;
        assert!(again.is_err(), "this run is over");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_does_not_work_leaves_the_run_to_be_launched_again() {
    let inn = Inn::new();
    for broken in ["/no/such/innkeeper", "/bin/false"] {
        let mut spec = inn.script("exit 0");
        spec.launcher = broken.into();
        let error = launch(&spec).await.expect_err("that is no launcher");
        assert!(matches!(error, SessionError::Launcher { .. }), "{error:?}");
        assert_eq!(observe(&inn.files()), RunState::NotClaimed);
    }
    start(&inn.script("exit 0")).await;
    assert!(is_exit(&inn.over().await, ExitStatus::Code(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_ended_before_it_started_never_starts() {
    let inn = Inn::new();
    fs::create_dir_all(inn.files().directory()).expect("made");
    let ended = end_now(&inn.files(), Duration::from_secs(1)).await;
    assert!(
        matches!(ended.state, RunState::FailedToStart(_)),
        "{ended:?}"
    );
    launch(&inn.script("touch ran"))
        .await
        .expect_err("it is over");
    assert!(!inn.checkout().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_hangs_before_its_command_is_ended_with_the_session() {
    let inn = Inn::new();
    let mut hanging = tokio::process::Command::new("sleep")
        .arg("600")
        .kill_on_drop(true)
        .spawn()
        .expect("sleep starts");
    let pid = i32::try_from(hanging.id().expect("it runs")).expect("a pid fits");
    let launcher = Identity::of(pid).expect("it runs");
    let claim = serde_json::json!({ "launcher": launcher, "child": null, "claimed_at": 1 });
    fs::create_dir_all(inn.files().directory()).expect("made");
    fs::write(inn.files().started(), claim.to_string()).expect("written");
    assert_eq!(observe(&inn.files()), RunState::Starting);
    let ended = end_now(&inn.files(), Duration::from_secs(1)).await;
    assert_eq!(ended.state, RunState::Lost);
    assert!(!launcher.is_alive());
    hanging.wait().await.expect("it can be collected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_is_killed_at_any_moment_never_leaves_an_unknown_command() {
    for delay in 0..30 {
        let inn = Inn::new();
        let spec = inn.script("echo started >> starts; exec sleep 600");
        let files = inn.files();
        let launching = tokio::spawn(async move { launch(&spec).await });
        let launcher = until("the claim or the end", || {
            files.started().exists().then(|| launcher_of(&files))
        })
        .await;
        for _ in 0..delay * 200 {
            std::hint::black_box(std::time::Instant::now());
        }
        launcher.signal(Signal::KILL);
        drop(launching.await.expect("no panic"));
        let state = observe(&files);
        match &state {
            RunState::Running { child } => assert!(child.is_alive()),
            RunState::Lost => {
                // A stub may take a moment to see that it is not wanted.
                let session = inn.session.clone();
                until("nothing of it", || {
                    (!tree::all()
                        .iter()
                        .any(|one| tree::has_mark(one, "INNKEEPER_SESSION_ID", &session)))
                    .then_some(())
                })
                .await;
                assert_eq!(inn.file("starts"), "", "a lost start has not run");
            }
            other => panic!("{other:?}"),
        }
        let ended = end_now(&files, Duration::from_secs(5)).await;
        assert!(ended.remaining.is_empty(), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launchers_are_collected_and_leave_no_zombie() {
    let inn = Inn::new();
    start(&inn.script("exit 0")).await;
    let launcher = launcher_of(&inn.files());
    inn.over().await;
    until("the launcher to be collected", || {
        launcher.look().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_can_be_cancelled() {
    let inn = Inn::new();
    start(&inn.script("exec sleep 600")).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let state = wait(&inn.files(), &cancel).await;
    assert!(matches!(state, RunState::Running { .. }), "{state:?}");
    end_now(&inn.files(), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_another_session_is_left_alone() {
    let (inn, other) = (Inn::new(), Inn::new());
    start(&inn.script("exec sleep 600")).await;
    start(&other.script("exec sleep 600")).await;
    end_now(&inn.files(), Duration::from_secs(5)).await;
    assert!(matches!(observe(&other.files()), RunState::Running { .. }));
    end_now(&other.files(), Duration::from_secs(5)).await;
}
