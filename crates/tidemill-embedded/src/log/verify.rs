//! A check of everything: all checksums, all numbers, and that postings tell the same as the blocks.

use std::collections::BTreeMap;

use super::entry::{Entries, RawEntry};
use super::index::postings::Postings;
use super::keeper::for_each_entry;
use super::segment::raw_segment::RawSegment;
use super::segment::sealed::SealedSegment;
use super::shared::{Segment, Shared};
use super::{LogError, Seq, lock};
use crate::codec::{BadBytes, decode_event, decode_fields};

/// What is wrong with the log, one line for each finding.
pub(super) fn verify(shared: &Shared) -> Result<Vec<String>, LogError> {
    let mut findings = Vec::new();
    let segments = shared.segments();
    let mut previous: Option<&Segment> = None;
    for segment in segments.iter() {
        if let Some(before) = previous
            && before.next_start() != segment.start()
        {
            findings.push(format!("{} does not follow {}", segment.path(), before.path()));
        }
        previous = Some(segment);
        let checked = match segment {
            Segment::Raw(raw) => check_raw(raw, &mut findings),
            Segment::Sealed(sealed) => {
                // Opened again, since what is in memory was read long ago.
                let mut dictionaries = lock::lock(&shared.keeping);
                let reopened = shared.open_sealed(sealed.id(), &mut dictionaries);
                drop(dictionaries);
                reopened.and_then(|sealed| check_sealed(&sealed, &mut findings))
            }
        };
        match checked {
            Err(error @ (LogError::Corrupt { .. } | LogError::Newer { .. })) => {
                findings.push(error.to_string());
            }
            Err(LogError::Io { file, source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                findings.push(format!("{file} is missing"));
            }
            checked => checked?,
        }
    }
    Ok(findings)
}

fn check_raw(raw: &RawSegment, findings: &mut Vec<String>) -> Result<(), LogError> {
    let mut events = 0;
    for_each_entry(raw, |entry| {
        if let RawEntry::Event { seq, bytes } = entry {
            decode_event(seq, bytes).map_err(|BadBytes(problem)| {
                LogError::corrupt(&raw.path, 0, format!("event {seq} {problem}"))
            })?;
            events += 1;
        }
        Ok(())
    })?;
    let published = raw.published().postings.len();
    if events < published {
        findings.push(format!("{} holds {events} events; {published} were published", raw.path));
    }
    Ok(())
}

fn check_sealed(sealed: &SealedSegment, findings: &mut Vec<String>) -> Result<(), LogError> {
    let mut find = |offset: u64, problem: String| {
        findings.push(sealed.damaged(offset, &problem).to_string());
    };
    let footer = *sealed.footer();
    let mut postings = Postings::default();
    let mut seqs: Vec<Seq> = Vec::new();
    let mut controls = 0;
    for block in 0..sealed.block_count() {
        let offset = sealed.offset_of(block);
        let damaged = |BadBytes(problem)| sealed.damaged(offset, problem);
        let bytes = sealed.read_block(block)?;
        let mut entries = Entries::new(&bytes, sealed.seq_at(block));
        while let Some(entry) = entries.next().map_err(damaged)? {
            match entry {
                RawEntry::Event { seq, bytes } => {
                    decode_event(seq, bytes).map_err(damaged)?;
                    postings.push(&decode_fields(bytes).map_err(damaged)?);
                    if seqs.last().is_some_and(|last| *last >= seq)
                        || !(footer.start.seq..footer.end.seq).contains(&seq)
                    {
                        find(offset, format!("event {seq} is out of place"));
                    }
                    seqs.push(seq);
                }
                RawEntry::Control(_) => controls += 1,
                RawEntry::Frame(_) => {}
            }
        }
    }
    if (postings.len() as u64, controls) != (footer.events, footer.controls) {
        let problem = format!(
            "the footer tells of {} events and {} control entries, but there are {} and {controls}",
            footer.events,
            footer.controls,
            postings.len()
        );
        find(sealed.bytes(), problem);
    }
    if postings.extent() != footer.extent {
        find(sealed.bytes(), "the footer tells of other times than the events".to_owned());
    }
    check_lists(sealed, &postings, &seqs, &mut find)
}

fn check_lists(
    sealed: &SealedSegment,
    postings: &Postings,
    seqs: &[Seq],
    find: &mut impl FnMut(u64, String),
) -> Result<(), LogError> {
    let mut expected = BTreeMap::new();
    for (key, list) in postings.lists() {
        let mut bytes = Vec::new();
        key.put(&mut bytes);
        expected.insert(bytes, list);
    }
    for (key, list) in sealed.all_lists()? {
        let name = String::from_utf8_lossy(&key).into_owned();
        let Some(wanted) = expected.remove(&key) else {
            find(0, format!("there is a posting list {name:?} without events"));
            continue;
        };
        let mut wanted = wanted.iter();
        let mut is_same = true;
        for number in 0..list.chunk_count() {
            for posting in list.chunk(sealed, number)? {
                is_same &= wanted.next().is_some_and(|item| {
                    let millis = postings.position(item).timestamp.millis();
                    (millis, seqs[item as usize]) == (posting.millis, posting.seq)
                });
            }
        }
        if !is_same || wanted.next().is_some() {
            find(0, format!("the posting list {name:?} does not tell the same as the blocks"));
        }
    }
    for key in expected.keys() {
        find(0, format!("the posting list {:?} is missing", String::from_utf8_lossy(key)));
    }
    Ok(())
}
