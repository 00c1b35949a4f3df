//! Names: every id has a type of its own and is checked once, where it enters.
//!
//! No id ever holds `#` (it separates the parts of a key) or a control character. Inside the system a value of one
//! of these types is known to be right.

use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not an id: the field it was meant for, what is wrong, and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct BadId {
    /// The field as users know it, such as `requestId`.
    pub field: &'static str,
    /// What is wrong with the text.
    pub problem: IdProblem,
}

/// What can be wrong with an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    #[error("is empty")]
    Empty,
    #[error("is {length} bytes long; the limit is {limit}")]
    TooLong { length: usize, limit: usize },
    #[error("holds {found:?}; allowed are {allowed}")]
    Character { found: char, allowed: &'static str },
    #[error("has the form of a job task's id, which only the engine may mint")]
    Reserved,
    #[error("is not of the form {form}")]
    Form { form: &'static str },
}

const WORD: &str = "letters, digits, `_` and `-`";
const NO_FLAG: &str = "letters, digits, `_` and, but not at the start, `-`";
pub(crate) const TEXT: &str = "all characters but `#` and control characters";
const CAPITALS: &str = "capital letters and `_`, starting with a letter";

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

pub(crate) fn is_text(c: char) -> bool {
    c != '#' && !c.is_control()
}

pub(crate) fn check(
    field: &'static str,
    text: &str,
    limit: usize,
    allowed: &'static str,
    fits: fn(char) -> bool,
) -> Result<(), BadId> {
    let problem = if text.is_empty() {
        IdProblem::Empty
    } else if text.len() > limit {
        IdProblem::TooLong { length: text.len(), limit }
    } else if let Some(found) = text.chars().find(|c| !fits(*c)) {
        IdProblem::Character { found, allowed }
    } else {
        return Ok(());
    };
    Err(BadId { field, problem })
}

/// For ids that become arguments of programs, where a leading `-` would make them flags.
fn check_no_flag(field: &'static str, text: &str) -> Result<(), BadId> {
    if text.starts_with('-') {
        return Err(BadId { field, problem: IdProblem::Character { found: '-', allowed: NO_FLAG } });
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $field:literal, $limit:expr, $allowed:expr, $fits:expr $(, $more:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest text that is accepted, in bytes.
            pub const LENGTH_MAX: usize = $limit;

            /// Checks `text` and takes it as this kind of id.
            pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
                let text = text.as_ref();
                check($field, text, $limit, $allowed, $fits)?;
                $($more($field, text)?;)?
                Ok(Self(Arc::from(text)))
            }

            /// Takes a text that was checked before it was stored.
            pub fn trusted(text: &str) -> Self {
                Self(Arc::from(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text.as_ref()).map_err(serde::de::Error::custom)
            }
        }

        text_schema!($name, json_schema!({ "type": "string", "minLength": 1, "maxLength": $limit }));
    };
}

pub(crate) use text_id;

/// Describes an id in place: it is a text and needs no entry of its own.
macro_rules! text_schema {
    ($name:ident, $schema:expr) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

pub(crate) use text_schema;

text_schema!(EntityType, json_schema!({ "type": "string", "pattern": "^[A-Z][A-Z_]{0,31}$" }));
text_schema!(JobId, json_schema!({ "type": "string", "pattern": "^job-[0-9a-f]{32}$" }));
text_schema!(EventId, json_schema!({ "type": "string", "format": "uuid" }));

text_id!(
    /// Whose data it is. Nothing is ever read or written across tenants.
    TenantId, "tenantId", 64, WORD, is_word
);
text_id!(
    /// The application that sends an event.
    AppName, "appName", 64, TEXT, is_text
);
text_id!(
    /// The global name of a task (unique within its tenant) or of a client's request.
    RequestId, "requestId", 256, WORD, is_word
);
text_id!(
    /// The name of a task within its job.
    TaskId, "taskId", 200, WORD, is_word
);
text_id!(
    /// The name of what a task does: a stored definition or a registered handler.
    TaskName, "name", 200, TEXT, is_text
);
text_id!(
    /// Which thing an event is about, within its entity type.
    EntityId, "entityId", 512, TEXT, is_text
);
text_id!(
    /// What happened, such as `Task Completed` or `user.created`.
    EventType, "eventType", 128, TEXT, is_text
);
text_id!(
    /// A worker, which runs tasks.
    WorkerId, "workerId", 128, TEXT, is_text
);
text_id!(
    /// An agent's session, by which a later attempt can go on where an earlier one ended.
    SessionId, "sessionId", 128, NO_FLAG, is_word, check_no_flag
);

text_id!(
    /// A stored script.
    ScriptId, "scriptId", 128, WORD, is_word
);
text_id!(
    /// A script's wish to see events.
    SubscriptionId, "subscriptionId", 128, WORD, is_word
);

/// What sort of thing an event is about: `TASK`, `JOB`, `STORE` and so on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EntityType(Arc<str>);

impl EntityType {
    pub const LENGTH_MAX: usize = 32;
    /// Types that only the engine may write to.
    pub const RESERVED: [&'static str; 4] = ["TASK", "JOB", "SYSTEM", "EXECUTION"];

    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let text = text.as_ref();
        check("entityType", text, Self::LENGTH_MAX, CAPITALS, |c| c.is_ascii_uppercase() || c == '_')?;
        if text.starts_with('_') {
            let problem = IdProblem::Character { found: '_', allowed: CAPITALS };
            return Err(BadId { field: "entityType", problem });
        }
        Ok(Self(Arc::from(text)))
    }

    /// Takes a text that was checked before it was stored.
    pub fn trusted(text: &str) -> Self {
        Self(Arc::from(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_reserved(&self) -> bool {
        Self::RESERVED.contains(&self.as_str())
    }
}

impl fmt::Display for EntityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EntityType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(text.as_ref()).map_err(serde::de::Error::custom)
    }
}

/// One job: `job-` and 32 hexadecimal digits, minted by the engine.
///
/// The length is fixed, so `{jobId}_{taskId}` can be taken apart again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    /// `job-` and 32 digits.
    pub const LENGTH: usize = 36;
    const FORM: &'static str = "`job-` and 32 lower-case hexadecimal digits";

    pub fn mint(id: EventId) -> Self {
        Self(id.as_u128())
    }

    pub fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }

    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let bits = text.as_ref().strip_prefix("job-").and_then(|digits| read_digits(digits.as_bytes()));
        bits.map(Self).ok_or(BadId { field: "jobId", problem: IdProblem::Form { form: Self::FORM } })
    }

    /// The global id of this job's task.
    pub fn request_id(self, task: &TaskId) -> RequestId {
        RequestId(Arc::from(format!("{self}_{task}")))
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The number that 32 lower-case hexadecimal digits tell. Every task of a job is found through it, many times in its life:
/// digit by digit through a table it takes a sixth of the time of the general way.
fn read_digits(digits: &[u8]) -> Option<u128> {
    const NONE: u8 = 0xff;
    const VALUES: [u8; 256] = {
        let mut values = [NONE; 256];
        let mut value = 0;
        while value < 16 {
            values[DIGITS[value as usize] as usize] = value;
            value += 1;
        }
        values
    };
    let half = |digits: &[u8]| {
        digits.iter().fold((0u64, 0u8), |(bits, seen), digit| {
            let value = VALUES[usize::from(*digit)];
            (bits << 4 | u64::from(value & 0xf), seen | value)
        })
    };
    let digits: &[u8; 32] = digits.try_into().ok()?;
    let ((high, seen_high), (low, seen_low)) = (half(&digits[..16]), half(&digits[16..]));
    (seen_high | seen_low < 16).then(|| u128::from(high) << 64 | u128::from(low))
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = *b"job-00000000000000000000000000000000";
        let mut bits = self.0;
        for digit in text[4..].iter_mut().rev() {
            *digit = DIGITS[(bits & 0xf) as usize];
            bits >>= 4;
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for JobId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::new(text)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(text.as_ref()).map_err(serde::de::Error::custom)
    }
}

impl RequestId {
    /// A standalone task's id as a client chose it: it may not look like a job task's.
    pub fn standalone(text: impl AsRef<str>) -> Result<Self, BadId> {
        let id = Self::new(text)?;
        if id.job_part().is_some() {
            return Err(BadId { field: "requestId", problem: IdProblem::Reserved });
        }
        Ok(id)
    }

    /// The job this id names by its form, if it has the form of a job task's id.
    pub fn job_part(&self) -> Option<JobId> {
        let text = self.as_str();
        if text.as_bytes().get(JobId::LENGTH) != Some(&b'_') {
            return None;
        }
        JobId::new(&text[..JobId::LENGTH]).ok()
    }

    /// Job and task of a job task's id.
    pub fn parts(&self) -> Option<(JobId, &str)> {
        self.job_part().map(|job| (job, &self.as_str()[JobId::LENGTH + 1..]))
    }

    /// The same id as the entity of an event.
    pub fn entity_id(&self) -> EntityId {
        EntityId(Arc::clone(&self.0))
    }
}

/// One event. UUID version 7, so ids made later sort later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(uuid::Uuid);

impl EventId {
    pub fn from_u128(bits: u128) -> Self {
        Self(uuid::Uuid::from_u128(bits))
    }

    pub fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let bad = BadId { field: "eventId", problem: IdProblem::Form { form: "a UUID" } };
        uuid::Uuid::try_parse(text.as_ref()).map(Self).map_err(|_| bad)
    }

    /// The canonical text of this id, written into `buffer`: 36 characters that sort like the id itself.
    pub fn encode(self, buffer: &mut [u8; 36]) -> &str {
        self.0.as_hyphenated().encode_lower(buffer)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(text.as_ref()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_refused_by_name_and_rule() {
        let long = "a".repeat(257);
        for (text, expected) in [
            ("", "requestId is empty"),
            ("a/b", "requestId holds '/'; allowed are letters, digits, `_` and `-`"),
            ("a#b", "requestId holds '#'; allowed are letters, digits, `_` and `-`"),
            ("a\nb", "requestId holds '\\n'; allowed are letters, digits, `_` and `-`"),
            (&long, "requestId is 257 bytes long; the limit is 256"),
        ] {
            assert_eq!(RequestId::new(text).unwrap_err().to_string(), expected);
        }
        assert!(RequestId::new("a".repeat(256)).is_ok());
        assert!(EntityType::new("STORE").is_ok());
        for bad in ["", "store", "_A", "A1", "A#"] {
            assert!(EntityType::new(bad).is_err(), "{bad:?}");
        }
        assert!(SessionId::new("a-b_1").is_ok());
        for bad in ["", "-a", "--settings", "a b", "a=b"] {
            assert!(SessionId::new(bad).is_err(), "{bad:?}");
        }
        let flag = SessionId::new("--a").unwrap_err().to_string();
        assert_eq!(
            flag,
            "sessionId holds '-'; allowed are letters, digits, `_` and, but not at the start, `-`"
        );
        assert!(EntityId::new("arn:aws:states:x/y z").is_ok());
        assert!(EntityId::new("a#b").is_err());
    }

    #[test]
    fn job_task_ids_come_apart_again() {
        let job = JobId::from_u128(7);
        let request = job.request_id(&TaskId::new("task_A").unwrap());
        assert_eq!(request.as_str(), "job-00000000000000000000000000000007_task_A");
        assert_eq!(request.parts(), Some((job, "task_A")));
        assert_eq!(JobId::new(job.to_string()), Ok(job));
        assert!(RequestId::standalone(request.as_str()).is_err());
        assert!(RequestId::standalone("job-7_x").is_ok());
        for bits in [0, 1, 0xf, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210, 0xa0 << 64] {
            let job = JobId::from_u128(bits);
            assert_eq!(job.to_string(), format!("job-{bits:032x}"));
            assert_eq!(JobId::new(job.to_string()), Ok(job));
        }
        let good = JobId::from_u128(u128::MAX / 3).to_string();
        for at in 4..good.len() {
            for bad in ["G", "A", "F", "g", "/", ":", "`", "_", "-", " ", "\0", "\x7f", ""] {
                let text = format!("{}{bad}{}", &good[..at], &good[at + 1..]);
                assert!(JobId::new(&text).is_err(), "{text:?}");
            }
        }
        assert!(JobId::new(format!("{good}0")).is_err());
    }
}
