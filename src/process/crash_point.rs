//! Named points at which the daemon can be made to die, as `kill -9` kills it.
//!
//! That nothing is lost whatever instruction a daemon dies at can only be shown
//! by having it die there. Before and after every effect, and at every stored
//! transition, the code passes a point of the catalogue [`CrashPoint`]. With
//! `INNKEEPER_CRASH_AT=<name>[:<n>]` in its environment a daemon sends itself
//! SIGKILL at the n-th passing (from 1) of the point of that name; a name that
//! does not exist keeps it from starting, so that no test waits for a death that
//! cannot come.
//!
//! Without the variable a point costs one relaxed load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// The variable that says where to die.
pub const VARIABLE: &str = "INNKEEPER_CRASH_AT";

macro_rules! crash_points {
    ($($variant:ident = $name:literal, $doc:literal;)*) => {
        /// A point that the daemon passes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CrashPoint {
            $(#[doc = $doc] $variant,)*
        }

        impl CrashPoint {
            /// Every point, in the order in which a checkout's life passes them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the point of this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

crash_points! {
    StoreWritten = "store.written", "A transition is written and not yet committed.";
    StoreCommitted = "store.committed", "A transition is committed and nobody knows.";
    InboxStored = "inbox.stored", "A delivery is stored and not yet answered.";
    DeliveryClaimed = "delivery.claimed", "A delivery's decision is stored and nothing is done.";
    CheckoutBegun = "checkout.begun", "The store says that a checkout is being prepared.";
    VaultFetched = "vault.fetched", "A vault is complete in the staging area.";
    VaultMade = "vault.made", "A vault is in place, its shared clone is not.";
    SharedMade = "shared.made", "A shared clone is in place.";
    FetchDone = "fetch.done", "Objects and refs came into a vault.";
    JournalPreparing = "journal.preparing", "The journal says that a checkout is being made.";
    RecordWritten = "record.written", "Git's record is written and not yet among the others.";
    DirectoryPlaced = "directory.placed", "The directory has its name.";
    RecordPlaced = "record.placed", "Git's record is among the others.";
    CloneObjects = "clone.objects", "A clone has its objects.";
    CloneRefs = "clone.refs", "A clone has its refs.";
    FilesWritten = "files.written", "The files of a checkout are written.";
    BranchCreated = "branch.created", "A checkout's branch is made and HEAD does not name it.";
    HeadSet = "head.set", "HEAD names the branch.";
    ClonePlaced = "clone.placed", "A clone has its name.";
    JournalReady = "journal.ready", "The journal says that a checkout is ready.";
    CheckoutMade = "checkout.made", "A checkout is ready and the store does not say so.";
    CheckoutReady = "checkout.ready", "The store says that a checkout is ready.";
    JournalMoving = "journal.moving", "The journal says that a checkout is being moved.";
    MoveObjects = "move.objects", "A clone has the objects of the commit that it is moved to.";
    MoveFiles = "move.files", "The files are those of the new commit, HEAD is not.";
    MoveRef = "move.ref", "The branch is at the new commit, the reflog does not say so.";
    MoveHead = "move.head", "HEAD is at the new commit, the journal does not say so.";
    CheckoutMoved = "checkout.moved", "A checkout was moved or left alone and the store does not say so.";
    SessionPlanned = "session.planned", "A run is planned in the store.";
    SessionPrompt = "session.prompt", "A run's prompt is written.";
    SessionLaunched = "session.launched", "A run's command runs and the store does not say so.";
    SessionEnding = "session.ending", "A session is to be ended and nothing is done.";
    SessionEnded = "session.ended", "A run is over and the store does not say so.";
    SessionOver = "session.over", "The store says that a run is over.";
    SessionClosed = "session.closed", "The store says that a session is closed.";
    RemovalBegun = "removal.begun", "The store says that a checkout is to go.";
    GateLooked = "gate.looked", "The gate has judged a checkout and nothing is done.";
    ArchiveMarked = "archive.marked", "It is marked that an archive is being made.";
    ArchiveBundled = "archive.bundled", "The commits of an archive are bundled, nothing pins them.";
    ArchiveVerified = "archive.verified", "An archive is written and read back, in the staging area.";
    ArchivePinned = "archive.pinned", "The commits of an archive are pinned in the vault.";
    ArchiveShelved = "archive.shelved", "An archive has its name, the checkout is untouched.";
    JournalRemoving = "journal.removing", "The journal says that a checkout is on its way out.";
    DirectoryTrashed = "directory.trashed", "The directory is in the trash, git's record is in place.";
    TrashLooked = "trash.looked", "What is in the trash was looked at again.";
    RemovalCertain = "removal.certain", "Git's record, or a clone's mark, says that there is no way back.";
    BranchDropped = "branch.dropped", "The branch is deleted.";
    DirectoryMarked = "directory.marked", "The directory in the trash may be deleted.";
    RecordDeleted = "record.deleted", "Git's record is deleted.";
    JournalRemoved = "journal.removed", "The journal has forgotten a checkout.";
    ArchiveSettled = "archive.settled", "An archive is there for good, or gone.";
    RemovalDone = "removal.done", "A checkout was removed or kept and the store does not say so.";
    TrashSwept = "trash.swept", "Something in the trash is deleted.";
    JobFinished = "job.finished", "The store says that a delivery or request is done.";
    EventsWritten = "events.written", "Events are in the file, which is not flushed.";
    EventsFlushed = "events.flushed", "The file is flushed, the store still has its events.";
    EventsForgotten = "events.forgotten", "The store has forgotten what the file has.";
    RestoreBegun = "restore.begun", "The store says that a checkout is being restored.";
    RestorePlaced = "restore.placed", "A restored checkout has its name, the journal does not say that it is ready.";
    RestoreDone = "restore.done", "A checkout is restored and the store does not say so.";
    RestoreStored = "restore.stored", "The store says that a checkout is restored, whoever asked does not know.";
    UndoRecord = "undo.record", "Of a checkout that is unmade, git's record is away.";
    UndoBranch = "undo.branch", "Of a checkout that is unmade, the branch is back where it was.";
    UndoDirectory = "undo.directory", "Of a checkout that is unmade, the directory is away.";
    RemovalTakenBack = "removal.taken-back", "A directory is back from the trash, the journal does not say so.";
}

/// Where to die, and how often that place is still to be passed.
struct Order {
    point: CrashPoint,
    passings: AtomicU64,
}

static IS_ARMED: AtomicBool = AtomicBool::new(false);
static ORDER: OnceLock<Order> = OnceLock::new();

/// Why an order cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{VARIABLE}={order}` names no point at which to die")]
pub struct UnknownPoint {
    order: String,
}

/// Takes the order `<name>[:<n>]`; the first one holds.
///
/// # Errors
///
/// Returns [`UnknownPoint`] for a name that is not in the catalogue or a number
/// that is none.
pub fn arm(order: &str) -> Result<(), UnknownPoint> {
    let (point, passings) = parse(order).ok_or_else(|| UnknownPoint {
        order: order.to_owned(),
    })?;
    ORDER.get_or_init(|| Order {
        point,
        passings: AtomicU64::new(passings),
    });
    IS_ARMED.store(true, Ordering::Release);
    Ok(())
}

fn parse(order: &str) -> Option<(CrashPoint, u64)> {
    let (name, passings) = match order.split_once(':') {
        Some((name, number)) => (name, number.parse().ok().filter(|number| *number > 0)?),
        None => (order, 1),
    };
    Some((CrashPoint::from_name(name)?, passings))
}

impl CrashPoint {
    /// Goes on, or dies here.
    #[inline]
    pub fn pass(self) {
        if IS_ARMED.load(Ordering::Relaxed) {
            self.pass_armed();
        }
    }

    #[cold]
    fn pass_armed(self) {
        let Some(order) = ORDER.get().filter(|order| order.point == self) else {
            return;
        };
        // Below one it goes round; nobody passes often enough to be back at one.
        if order.passings.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = kill_process(getpid(), Signal::KILL);
            // The signal may reach another thread of the process first.
            loop {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name_and_names_are_told_apart() {
        for point in CrashPoint::ALL {
            assert_eq!(CrashPoint::from_name(point.name()), Some(*point));
            assert_eq!(parse(point.name()), Some((*point, 1)));
            assert_eq!(parse(&format!("{}:12", point.name())), Some((*point, 12)));
        }
    }

    #[test]
    fn an_order_that_could_never_be_followed_is_refused() {
        for order in [
            "",
            "nowhere",
            "fetch.done:0",
            "fetch.done:x",
            "fetch.done:",
            ":1",
        ] {
            let error = arm(order).expect_err("refused");
            assert!(error.to_string().contains(order), "{error}");
        }
        // And nothing dies of having asked.
        CrashPoint::FetchDone.pass();
    }
}
