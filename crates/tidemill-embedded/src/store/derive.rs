//! Makes the state from what is on disk: the rows up to their checkpoint, then the log after it.

use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::commit::MessageId;

use super::StoreOptions;
use super::decider::Decider;
use super::rows::row_store::{Checkpoint, RowStore};
use super::watch::{Step, Watch, unwatched};
use crate::log::{Entry, Log, LogPosition, LogReader, SegmentKind, Seq};

/// After this many changed rows a rebuild writes them, so that memory does not grow with the log.
const ROWS_IN_MEMORY_MAX: usize = 100_000;

pub(crate) fn decider(rows: &Arc<RowStore>, log: &Log, options: &StoreOptions) -> Result<Decider, Fault> {
    decider_watched(rows, log, options, &mut unwatched)
}

/// Rows that are found damaged on the way, or that the keeper rebuilds meanwhile, reflect all of the log: what was replayed up to
/// then began at an older checkpoint, and an entry would be applied twice. So the replay begins anew.
pub(super) fn decider_watched(
    rows: &Arc<RowStore>,
    log: &Log,
    options: &StoreOptions,
    watch: &mut Watch<'_>,
) -> Result<Decider, Fault> {
    loop {
        let times = rows.times_rebuilt();
        let derived = replayed(rows, times, log, options, watch);
        if derived.is_err() && rows.has_trouble() {
            // Nothing goes on without a state, so this does not wait for the keeper's turn.
            rows.heal()?;
        }
        if rows.times_rebuilt() == times {
            return derived;
        }
    }
}

/// `times` is how often the rows were rebuilt when this began.
fn replayed(
    rows: &Arc<RowStore>,
    times: u64,
    log: &Log,
    options: &StoreOptions,
    watch: &mut Watch<'_>,
) -> Result<Decider, Fault> {
    let from = rows.checkpoint()?.map_or(LogPosition::START, |checkpoint| checkpoint.position);
    // Ids of this life must not meet those of another: the end of the log tells lives apart.
    let seed = options.seed ^ log.next_seq().0.rotate_left(32);
    let mut decider =
        Decider::new(Arc::clone(rows), options.policy.clone(), options.site.clone(), seed, from.next_seq);
    decider.replayed_on = Some(times);
    decider.load_open()?;
    let reader = log.reader();
    let total = log.next_seq().0.saturating_sub(from.next_seq.0);
    let mut step = Step::begin(watch, "replaying events", Some(total));
    let mut replay = |decider: &mut Decider, entry: &Entry<'_>| {
        if let Entry::Event(_) = entry {
            step.tick();
        }
        decider.replay(entry)
    };
    if from.offset == 0 {
        for segment in reader.segments().into_iter().filter(|segment| segment.id >= from.segment) {
            reader.scan::<Fault>(segment.id, |entry| replay(&mut decider, &entry))?;
            let behind = LogPosition { segment: segment.id + 1, offset: 0, next_seq: segment.end_seq };
            if segment.kind != SegmentKind::Open {
                spill(&mut decider, rows, behind)?;
            }
        }
    } else {
        reader.replay::<Fault>(from, |entry| replay(&mut decider, &entry))?;
    }
    step.end();
    decider.replayed_on = None;
    decider.state.end_carry();
    decider.set_next_seq(log.next_seq());
    // Ids go on where the log ends, even if the clock went back since.
    if let Some(last) = log.next_seq().0.checked_sub(1).filter(|last| *last > 0)
        && let Some(stored) = reader.read(Seq(last))?
    {
        decider.observe(stored.event.id);
    }
    Ok(decider)
}

/// Makes rows from the log alone, as far as it is published now. Says what they reflect, and which messages they have.
pub(super) fn rows_again(
    rows: &Arc<RowStore>,
    reader: &LogReader,
    options: &StoreOptions,
) -> Result<(Checkpoint, Vec<MessageId>), Fault> {
    let (policy, site) = (options.policy.clone(), options.site.clone());
    let mut decider = Decider::new(Arc::clone(rows), policy, site, options.seed, Seq::FIRST);
    let mut reached = LogPosition::START;
    for segment in reader.segments().into_iter().filter(|segment| segment.kind != SegmentKind::Open) {
        reader.scan::<Fault>(segment.id, |entry| decider.replay(&entry))?;
        reached = LogPosition { segment: segment.id + 1, offset: 0, next_seq: segment.end_seq };
        spill(&mut decider, rows, reached)?;
    }
    let position = reader.replay::<Fault>(reached, |entry| decider.replay(&entry))?;
    decider.state.end_carry();
    let changed = decider.state.take_dirty().unwrap_or_default();
    rows.write(&changed, Checkpoint { position })?;
    let messages = decider.state.queue().iter().map(|queued| queued.message.id).collect();
    Ok((Checkpoint { position }, messages))
}

/// Writes rows in the middle of a long replay.
fn spill(decider: &mut Decider, rows: &RowStore, position: LogPosition) -> Result<(), Fault> {
    // A replay from here would miss the beginning of a job that is being carried.
    if decider.state.dirty_len() < ROWS_IN_MEMORY_MAX || decider.state.is_carrying() {
        return Ok(());
    }
    if let Some(changed) = decider.state.take_dirty() {
        rows.write(&changed, Checkpoint { position })?;
        decider.state.stored();
    }
    Ok(())
}
