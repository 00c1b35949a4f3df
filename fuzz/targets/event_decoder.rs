//! Events: any bytes are an event or an error, in the log's own form and as JSON; what was decoded encodes to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_engine::codec::{decode_event, decode_fields};
use tidemill_engine::state::trail::Seq;
use tidemill_model::Event;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode_event(Seq(1), bytes);
    let _ = decode_fields(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(event) = Event::from_json(text) else { return };
    let json = event.to_json();
    let again = Event::from_json(&json).expect("what was written can be read");
    assert_eq!(again.to_json(), json);
});
