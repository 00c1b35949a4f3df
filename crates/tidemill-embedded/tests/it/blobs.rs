//! Large values: those that an event names stay, the others go.

use tidemill_engine::command::Prepared;
use tidemill_model::EventId;
use tidemill_model::events::overflow::payload_key;

use crate::lab::{Fresh, Lab, acme, plain, publish, store_entity};

const QUARTER_HOUR: u64 = 15 * 60_000;

#[test]
fn the_blob_of_an_event_with_a_time_of_its_own_is_not_swept() {
    let fresh = Fresh::new();
    let mut lab = Lab::open(&fresh);
    let mut keys = Vec::new();
    for (number, is_named) in [(1u128, true), (2, false)] {
        let id = EventId::from_u128((u128::from(lab.now.millis()) << 80) | (7 << 76) | (2 << 62) | number);
        let key = payload_key(&store_entity("large").id, id);
        lab.store.put_blob(&acme(), &key, b"{}").unwrap();
        if is_named {
            let properties = plain(&format!(r#"{{"_s3Overflow":{{"bucket":"local","key":"{key}"}}}}"#));
            let properties = Prepared { id: Some(id), ..properties };
            let yesterday = lab.now.minus(24 * 3_600_000);
            lab.run(publish("large", properties, Some(yesterday), None)).unwrap();
        }
        keys.push(key);
    }
    lab.pass(2 * QUARTER_HOUR);
    assert_eq!(lab.store.sweep_blobs(lab.now).unwrap(), 1);
    assert!(lab.store.blob(&acme(), &keys[0]).unwrap().is_some());
    assert!(lab.store.blob(&acme(), &keys[1]).unwrap().is_none());
    lab.assert_clean();
}
