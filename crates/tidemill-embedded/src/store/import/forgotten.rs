//! Events that expired before the export: they have no place in the new log, but histories count them.
//!
//! A history's trail names events by their numbers. For those that are gone it needs numbers that no event has or will
//! have, so an imported log starts with a few numbers that were given out and dropped.

use std::sync::Arc;

use tidemill_engine::state::trail::Trail;
use tidemill_model::{AppName, Context, Entity, Event, EventId, EventType, Json, TenantId, Timestamp};

use crate::disk::Disk;
use crate::log::{Group, Links, Log, LogConfig, LogError, Seq};

/// How many numbers are dropped: more than the longest trail has stops.
const NUMBERS: u64 = 66;
/// The segment they are dropped with is as small as can be.
const SEGMENT_BYTES: u64 = 16 << 10;
/// What an entry takes beside its bytes.
const TAG_BYTES: usize = 4;

/// Makes a log whose first numbers are gone, and writes `first` behind them.
pub(super) fn start_log(disk: &Arc<dyn Disk>, config: LogConfig, first: &[u8]) -> Result<(), LogError> {
    let config = LogConfig { segment_bytes: SEGMENT_BYTES, hasty_segment_bytes: SEGMENT_BYTES, ..config };
    let mut log = Log::open(Arc::clone(disk), config, None)?;
    let mut group = Group::new();
    for number in 1..=NUMBERS {
        group.push_event(Seq(number), &nothing(), &Links::default());
    }
    // What follows must not fit into this segment.
    let left = usize::try_from(log.room()).unwrap_or(0).saturating_sub(group.byte_count());
    group.push_control(&vec![0; left.saturating_sub(TAG_BYTES)]);
    write(&mut log, &group)?;
    group.clear();
    group.push_control(first);
    write(&mut log, &group)?;
    let keeper = log.keeper();
    keeper.seal_next()?;
    keeper.drop_segment(1)
}

fn write(log: &mut Log, group: &Group) -> Result<(), LogError> {
    let appended = log.append(group)?;
    log.sync()?;
    log.publish(group, appended)
}

/// The trail of a chain of `count` events of which only `tip`, the newest, is known, if that.
pub(super) fn trail(count: u64, tip: Option<Seq>) -> Option<Trail> {
    // Its length is a matter of the count alone.
    (1..=NUMBERS).find_map(|length| {
        let mut stops: Vec<Seq> = (1..=length).map(Seq).collect();
        if let (Some(tip), Some(last)) = (tip, stops.last_mut()) {
            *last = tip;
        }
        Trail::from_parts(count, stops)
    })
}

/// Whether some of a chain's events are gone.
pub(super) fn is_cut(trail: &Trail) -> bool {
    // The first stop stays the first for ever.
    trail.stops().first().is_some_and(|first| first.0 <= NUMBERS)
}

fn nothing() -> Event {
    Event {
        id: EventId::from_u128(0),
        tenant: TenantId::trusted("-"),
        app: AppName::trusted("-"),
        entity: Entity::system("import"),
        event_type: EventType::trusted("-"),
        timestamp: Timestamp::MIN,
        received_at: Timestamp::MIN,
        context: Context { environment: "-".into(), origin: "-".into(), worker_id: None },
        properties: Json::empty_object(),
        ttl: None,
        beside: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_history_can_be_cut() {
        for count in (1..2_000).chain([u64::from(u32::MAX), u64::MAX / 2, u64::MAX]) {
            let whole = trail(count, None).unwrap();
            assert!(is_cut(&whole) && whole.count() == count, "{count}");
            let tip = trail(count, Some(Seq(1_000))).unwrap();
            assert_eq!((tip.count(), tip.tip()), (count, Some(Seq(1_000))));
            assert_eq!(is_cut(&tip), count > 1);
        }
        assert_eq!(trail(0, None), None);
    }
}
