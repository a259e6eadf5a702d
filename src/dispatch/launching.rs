//! From what is stored about a run to what its launcher is given.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Context;
use super::checkout::{Ready, Update};
use super::failure::Failure;
use super::job::Job;
use super::session::{Place, Planned, envelope_of};
use super::settings::Profile;
use crate::domain::checkout::CheckoutRecord;
use crate::domain::code::FailureCode;
use crate::domain::envelope::Envelope;
use crate::session::environment::{self, SessionFacts};
use crate::session::placeholders::{self, Values};
use crate::session::prompt::{self, CheckoutFacts, CheckoutUpdate, PromptFacts};
use crate::session::{DirectoryIdentity, LaunchSpec, RunFiles};
use crate::store::InputRow;

/// What is said to a session that got the default branch instead of a head.
const FALLBACK: &str = "The pull request's head could not be had; this is the default branch.";

/// What is handed to a session, as it is stored until a run carries it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Input {
    /// The event.
    pub(super) envelope: Envelope,
    /// What became of the checkout, if the event brought new commits.
    pub(super) update: Option<Update>,
    /// The head could not be had.
    pub(super) fallback: bool,
}

impl Input {
    /// Returns what this job's event hands over.
    pub(super) fn of(job: &Job, ready: Option<&Ready>) -> Self {
        Self {
            envelope: envelope_of(job),
            update: ready.and_then(|ready| ready.update.clone()),
            fallback: ready.is_some_and(|ready| ready.fallback),
        }
    }
}

/// Returns the files of a run.
pub(super) fn files(context: &Context, session: &str, run: u32) -> Result<RunFiles, Failure> {
    RunFiles::new(context.state_root.join("sessions"), session, run)
        .map_err(|error| Failure::new(error.code(), error.to_string()))
}

/// Returns whether a prompt can be made of this, before it is stored: a template
/// that cannot be rendered must fail the delivery that it is for.
pub(super) fn check(
    job: &Job,
    profile: &Profile,
    place: &Place,
    input: &Input,
) -> Result<(), Failure> {
    render(job, profile, place, std::slice::from_ref(input), "", false).map(drop)
}

fn render(
    job: &Job,
    profile: &Profile,
    place: &Place,
    inputs: &[Input],
    session: &str,
    resumes: bool,
) -> Result<String, Failure> {
    let events: Vec<Envelope> = inputs.iter().map(|input| input.envelope.clone()).collect();
    // Several updates in a row are one, from the first commit to the last.
    let updates: Vec<&Update> = inputs
        .iter()
        .filter_map(|input| input.update.as_ref())
        .collect();
    let update = match (updates.first(), updates.last()) {
        (Some(first), Some(last)) => Some(CheckoutUpdate {
            is_moved: last.moved,
            from: first.from.clone(),
            to: last.to.clone(),
        }),
        (None, _) | (_, None) => None,
    };
    let fallback = inputs
        .iter()
        .any(|input| input.fallback)
        .then_some(FALLBACK);
    let checkout = place.record.as_ref().map(|record| CheckoutFacts {
        path: &record.path,
        branch: record.branch.as_deref(),
        commit: &record.commit,
        base: Some(record.base.as_str()),
        update: update.clone(),
        fallback,
        push_off: record.push_off,
    });
    let facts = PromptFacts {
        work_item: &job.item.reference,
        session_id: session,
        is_resumed: resumes,
        checkout: checkout.as_ref(),
    };
    prompt::render(profile.spec.prompt.as_ref(), &events, &facts)
        .map_err(|error| Failure::new(error.code(), format!("{:#}", anyhow::Error::from(error))))
}

/// Returns what starts a planned run: prompt written, command and environment
/// filled in.
pub(super) async fn spec(
    job: &Job,
    place: &Place,
    profile: &Profile,
    planned: &Planned,
) -> Result<LaunchSpec, Failure> {
    let files = files(&job.context, &planned.session, planned.run)?;
    let (session, run) = (planned.session.clone(), planned.run);
    let rows = job
        .context
        .store
        .read(move |reader| reader.inputs(&session, Some(run)))
        .await
        .map_err(|error| Failure::new(FailureCode::Internal, error.to_string()))?;
    let inputs = rows
        .iter()
        .map(parse)
        .collect::<Result<Vec<Input>, Failure>>()?;
    let text = render(
        job,
        profile,
        place,
        &inputs,
        &planned.session,
        planned.resumes,
    )?;
    let name = match planned.run {
        1 => planned.session.clone(),
        run => format!("{}.{run}", planned.session),
    };
    let directory = job.context.state_root.join("prompts");
    let written = {
        let text = text.clone();
        tokio::task::spawn_blocking(move || prompt::write(&directory, &name, &text)).await
    };
    let prompt_file = written
        .map_err(|panic| Failure::new(FailureCode::Internal, panic.to_string()))?
        .map_err(|error| {
            let full = matches!(
                error.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            );
            let code = if full {
                FailureCode::DiskFull
            } else {
                FailureCode::SessionStartFailed
            };
            Failure::new(code, format!("the prompt could not be written: {error}"))
        })?;
    let last = inputs
        .last()
        .map_or_else(|| envelope_of(job), |input| input.envelope.clone());
    let delivery = rows
        .last()
        .and_then(|row| row.delivery.clone())
        .unwrap_or_default();
    let command = command(job, place, profile, planned, &last, &text, &prompt_file)?;
    let environment = environment::build(
        job.context.environment.iter().cloned(),
        &profile.spec,
        &job.settings.secret_variables,
        &SessionFacts {
            work_item: &job.item.reference,
            session_id: &planned.session,
            checkout: Some(&place.directory),
            branch: place
                .record
                .as_ref()
                .and_then(|record| record.branch.as_deref()),
            base_commit: place.record.as_ref().map(|record| record.base.as_str()),
            event: &last.event,
            action: last.action.as_deref(),
            delivery: &delivery,
            prompt_file: Some(&prompt_file),
        },
    )
    .map_err(|error| Failure::new(FailureCode::SessionStartFailed, error.to_string()))?;
    Ok(LaunchSpec {
        launcher: job.context.launcher.clone(),
        files,
        directory: place.directory.clone(),
        identity: place.record.as_ref().map(identity),
        command,
        environment,
        log_bytes: job.settings.log_bytes,
    })
}

fn parse(row: &InputRow) -> Result<Input, Failure> {
    serde_json::from_str(&row.text)
        .map_err(|error| Failure::new(FailureCode::Internal, format!("a stored text: {error}")))
}

fn identity(record: &CheckoutRecord) -> DirectoryIdentity {
    DirectoryIdentity {
        inode: record.inode,
        device: record.device,
        boot_id: record.boot_id.clone(),
    }
}

fn command(
    job: &Job,
    place: &Place,
    profile: &Profile,
    planned: &Planned,
    last: &Envelope,
    text: &str,
    prompt_file: &Path,
) -> Result<Vec<String>, Failure> {
    let arguments = match &profile.spec.resume {
        Some(resume) if planned.resumes => resume,
        Some(_) | None => &profile.spec.start,
    };
    let url = last.item.as_ref().and_then(|item| item.url.as_deref());
    placeholders::expand(
        arguments,
        &Values {
            prompt: text,
            prompt_file: &prompt_file.display().to_string(),
            session_id: &planned.session,
            work_item: &job.item.reference,
            checkout: &place.directory.display().to_string(),
            branch: place
                .record
                .as_ref()
                .and_then(|it| it.branch.as_deref())
                .unwrap_or_default(),
            event: &last.event,
            action: last.action.as_deref().unwrap_or_default(),
            url: url.unwrap_or_default(),
        },
    )
    .map_err(|error| Failure::new(FailureCode::SessionStartFailed, error.to_string()))
}
