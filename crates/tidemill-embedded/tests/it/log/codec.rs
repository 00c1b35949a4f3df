//! Events as bytes.

use tidemill_embedded::codec::{decode_event, decode_fields, encode_event};
use tidemill_embedded::log::{Links, Seq, StoredEvent};
use tidemill_model::{EventId, EventType, KnownType};

use super::support::{Random, event, random_event};

fn random_links(random: &mut Random, seq: u64) -> Links {
    let mut link = || (random.below(2) == 0 && seq > 1).then(|| Seq(1 + random.below(seq - 1)));
    let (prev, aside, jump) = (link(), link(), link());
    let ordinal = random.next() >> random.below(64);
    Links { prev, aside, jump, ordinal, is_aside: random.below(2) == 0 }
}

#[test]
fn events_come_back() {
    let mut random = Random::new(1);
    let mut bytes = Vec::new();
    for round in 0..5_000 {
        let seq = Seq(1 + (random.next() >> random.below(64)).min(u64::MAX - 2));
        let event = random_event(&mut random, round);
        let links = random_links(&mut random, seq.0);
        bytes.clear();
        encode_event(&mut bytes, seq, &event, &links);
        let fields = decode_fields(&bytes).unwrap();
        assert_eq!((fields.tenant, fields.app), (event.tenant.as_str(), event.app.as_str()));
        assert_eq!(fields.event_type, event.event_type.as_str());
        assert_eq!((fields.position(), fields.received_at), (event.position(), event.received_at));
        assert_eq!(decode_event(seq, &bytes), Ok(StoredEvent { seq, event, links }), "round {round}");
    }
}

#[test]
fn an_ordinary_event_is_short() {
    let mut bytes = Vec::new();
    for known in KnownType::ALL {
        let mut event = event(1);
        event.event_type = EventType::trusted(known.as_str());
        bytes.clear();
        encode_event(&mut bytes, Seq(1), &event, &Links::default());
        let texts = "acme".len() + "billing".len() + "STORE".len() + "s-1".len() + event.properties.len();
        assert!(bytes.len() <= texts + 35, "{} of {}", bytes.len() - texts, known.as_str());
    }
}

#[test]
fn any_id_is_kept() {
    for bits in [0, 1, u128::MAX, 1 << 79, 1 << 80, (1 << 80) - 1, u128::MAX << 80] {
        let mut event = event(3);
        event.id = EventId::from_u128(bits);
        let mut bytes = Vec::new();
        encode_event(&mut bytes, Seq(9), &event, &Links::default());
        assert_eq!(decode_event(Seq(9), &bytes).unwrap().event, event, "{bits:x}");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let mut random = Random::new(2);
    for round in 0..3_000 {
        let seq = Seq(1 + random.below(1 << 20));
        let event = random_event(&mut random, round);
        let links = random_links(&mut random, seq.0);
        let mut bytes = Vec::new();
        encode_event(&mut bytes, seq, &event, &links);
        match random.below(3) {
            0 => bytes.truncate(usize::try_from(random.below(bytes.len() as u64)).unwrap()),
            1 => {
                for _ in 0..=random.below(4) {
                    let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                    bytes[at] = u8::try_from(random.below(256)).unwrap();
                }
            }
            _ => bytes = (0..random.below(80)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
        }
        // Either an error or some event; both are fine as long as they agree on what can be read.
        if let Ok(stored) = decode_event(seq, &bytes) {
            assert_eq!(decode_fields(&bytes).unwrap().position(), stored.event.position(), "round {round}");
        }
    }
}
