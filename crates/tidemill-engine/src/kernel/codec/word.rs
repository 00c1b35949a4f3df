//! Words that nearly every event repeats, as one byte each.
//!
//! A code is on disk for ever: words may be added, but none changes its code. Code 0 says that the text follows.

use std::sync::{Arc, LazyLock};

use tidemill_model::{EntityType, EventType};

use crate::kernel::codec::bytes::{BadBytes, Reader, put_text};

/// A list of words with their codes, which count from 1 without holes.
pub(super) struct Words<T: 'static> {
    code: fn(&str) -> u8,
    /// The value of each code, made once and shared by all events that hold it.
    shared: LazyLock<Vec<T>>,
    make: fn(&str) -> T,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $type:ty = $make:expr, { $($code:literal = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        pub(super) static $name: Words<$type> = Words {
            code: |text| match text { $($text => $code,)+ _ => 0 },
            shared: LazyLock::new(|| [$($text),+].into_iter().map($make).collect()),
            make: $make,
        };
    };
}

words!(
    EVENT_TYPES: EventType = EventType::trusted, {
        1 = "Task Pending",
        2 = "Task Processing Started",
        3 = "Task Processing Failed",
        4 = "Task Completed",
        5 = "Task Failed",
        6 = "Task Timeout",
        7 = "Task Heartbeat",
        8 = "Job Created",
        9 = "Job Tasks Added",
        10 = "Job Completed",
        11 = "Job Failure Detected",
        12 = "Job Cancelled",
        13 = "Task Health Check",
        14 = "Budget Exceeded",
        15 = "Alert Raised",
        16 = "Alert Cleared",
        17 = "Execution Resumed",
        18 = "Execution Failed",
        19 = "Execution Expired",
        20 = "Error Ignored",
        21 = "Error Reopened",
        22 = "WorkflowEvent",
        23 = "ElephantErrorResolved",
        24 = "ElephantErrorFailedToResolve",
        25 = "Job Tasks Changed",
    }
);

words!(
    ENTITY_TYPES: EntityType = EntityType::trusted, {
        1 = "TASK", 2 = "JOB", 3 = "SYSTEM", 4 = "EXECUTION", 5 = "WORKFLOW", 6 = "ERROR_CODE",
    }
);

words!(
    ENVIRONMENTS: Arc<str> = shared, {
        1 = "prod", 2 = "production", 3 = "staging", 4 = "dev", 5 = "development", 6 = "test", 7 = "local",
    }
);

words!(
    ORIGINS: Arc<str> = shared, {
        1 = "producer-api",
        2 = "dispatcher",
        3 = "sqs-worker",
        4 = "dlq-processor",
        5 = "health-check",
        6 = "script",
        7 = "sweep",
        8 = "api",
        9 = "cli",
        10 = "worker",
    }
);

fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}

impl<T: Clone> Words<T> {
    /// Appends the word's code, or 0 and the text.
    pub(super) fn put(&self, out: &mut Vec<u8>, text: &str) {
        let code = (self.code)(text);
        out.push(code);
        if code == 0 {
            put_text(out, text);
        }
    }

    /// Reads what [`Words::put`] wrote.
    pub(super) fn read(&self, reader: &mut Reader<'_>) -> Result<T, BadBytes> {
        match reader.byte()? {
            0 => reader.text().map(self.make),
            code => self.known(code).cloned(),
        }
    }

    fn known(&self, code: u8) -> Result<&T, BadBytes> {
        self.shared.get(usize::from(code) - 1).ok_or(BadBytes("holds a word of a newer version"))
    }
}

impl<T: Clone + AsRef<str>> Words<T> {
    /// Like [`Words::read`], but only borrows the text.
    pub(super) fn read_text<'a>(&'static self, reader: &mut Reader<'a>) -> Result<&'a str, BadBytes> {
        match reader.byte()? {
            0 => reader.text(),
            code => self.known(code).map(AsRef::as_ref),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::KnownType;

    fn check<T: Clone + AsRef<str>>(words: &'static Words<T>) {
        for (index, value) in words.shared.iter().enumerate() {
            let mut out = Vec::new();
            words.put(&mut out, value.as_ref());
            assert_eq!(out, [u8::try_from(index + 1).unwrap()], "{}", value.as_ref());
            assert_eq!(words.read_text(&mut Reader::new(&out)), Ok(value.as_ref()));
        }
        assert!(words.read(&mut Reader::new(&[200])).is_err());
    }

    #[test]
    fn codes_count_from_one_and_come_back() {
        check(&EVENT_TYPES);
        check(&ENVIRONMENTS);
        check(&ORIGINS);
    }

    #[test]
    fn every_type_the_engine_writes_has_a_code() {
        for known in KnownType::ALL {
            assert_ne!((EVENT_TYPES.code)(known.as_str()), 0, "{}", known.as_str());
        }
        for reserved in EntityType::RESERVED {
            assert_ne!((ENTITY_TYPES.code)(reserved), 0, "{reserved}");
        }
    }
}
