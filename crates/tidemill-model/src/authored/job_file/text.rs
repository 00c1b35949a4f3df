//! From text to the fields of a job file, a task at a time.
//!
//! A file of many tasks would take many times its size as one value. Here a task is read, checked and let go before the
//! next one; its input, which may be large, stays text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::TaskEntry;
use crate::authored::bounded_value::{BadValue, BoundedValue, Key, Room};
use crate::authored::document::{Document, kind};
use crate::authored::field_problem::{FieldProblems, code};
use crate::authored::fields::Fields as _;
use crate::values::json::Json;
use crate::values::plain_json::Plain;
use crate::work::dag::JOB_TASKS_MAX;

/// The outermost object of a file.
#[derive(Default)]
pub(super) struct File {
    pub(super) fields: Map<String, Value>,
    pub(super) input: Option<Json>,
    pub(super) tasks: Tasks,
}

/// The tasks of a file.
#[derive(Default)]
pub(crate) enum Tasks {
    #[default]
    Missing,
    /// How many there are, those that are sound, and what is wrong with the others.
    List { count: usize, entries: Vec<TaskEntry>, problems: FieldProblems },
    /// What it is instead.
    Other(&'static str),
}

/// Which object of a file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One that has a list of tasks.
    Job,
    /// A task itself.
    Task,
}

/// What a file is read from.
pub(super) enum Source<'t> {
    Text(&'t str),
    Value(Value),
}

/// Reads a file. What it is instead of an object, or why it cannot be read, is a problem.
pub(super) fn read(source: Source<'_>, shape: Shape, problems: &mut FieldProblems) -> Option<File> {
    let mut reader = Reader { room: Room::default(), heavy: String::new() };
    let seed = ObjectSeed { reader: &mut reader, shape };
    let read = match source {
        Source::Text(text) => {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let read = seed.deserialize(&mut deserializer);
            read.and_then(|object| deserializer.end().map(|()| object))
        }
        Source::Value(value) => seed.deserialize(value),
    };
    match read {
        Ok(Ok(file)) => return Some(file),
        Ok(Err(kind)) => problems.add("", code::INVALID_TYPE, format!("must be an object, not {kind}")),
        Err(_) if reader.room.is_exceeded => {
            problems.add(reader.heavy, code::TOO_LONG, BadValue::TooHeavy.to_string());
        }
        Err(error) => problems.add("", code::INVALID_JSON, error.to_string()),
    }
    None
}

struct Reader {
    room: Room,
    /// What is being read: where the room was not enough.
    heavy: String,
}

/// An object, or what there is instead.
type Object<T> = Result<T, &'static str>;

struct ObjectSeed<'r> {
    reader: &'r mut Reader,
    shape: Shape,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Object<File>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Values that are no object, or no list.
macro_rules! others {
    ($value:ty, $($visit:ident: $kind:ty),*) => {
        $(fn $visit<E: Error>(self, value: $kind) -> Result<$value, E> {
            Ok(other(&Value::from(value)))
        })*

        fn visit_str<E: Error>(self, _: &str) -> Result<$value, E> {
            Ok(other(&Value::String(String::new())))
        }

        fn visit_unit<E: Error>(self) -> Result<$value, E> {
            Ok(other(&Value::Null))
        }
    };
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Object<File>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    others!(Object<File>, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Err(kind(&Value::Array(Vec::new()))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut file = File::default();
        while let Some(key) = object.next_key_seed(Key)? {
            match &*key {
                "tasks" if self.shape == Shape::Job => {
                    file.tasks = object.next_value_seed(TasksSeed(&mut *self.reader))?;
                }
                "input" if self.shape == Shape::Task => {
                    let mut text = Vec::new();
                    let is_given = object.next_value_seed(Plain(&mut text))?;
                    let text = String::from_utf8(text).map_err(A::Error::custom)?;
                    file.input = is_given.then(|| Json::parse(text)).transpose().map_err(A::Error::custom)?;
                }
                _ => {
                    let value = object.next_value_seed(BoundedValue(&mut self.reader.room))?;
                    file.fields.insert(key.into_owned(), value);
                }
            }
        }
        Ok(Ok(file))
    }
}

fn other<T: From<Other>>(value: &Value) -> T {
    Other(kind(value)).into()
}

/// What a value is that should be something else.
struct Other(&'static str);

impl<T> From<Other> for Object<T> {
    fn from(other: Other) -> Self {
        Err(other.0)
    }
}

impl From<Other> for Tasks {
    fn from(other: Other) -> Self {
        // Null stands for a field that is left out.
        if other.0 == kind(&Value::Null) { Self::Missing } else { Self::Other(other.0) }
    }
}

struct TasksSeed<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for TasksSeed<'_> {
    type Value = Tasks;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tasks, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TasksSeed<'_> {
    type Value = Tasks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    others!(Tasks, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Tasks, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(other(&Value::Object(Map::new())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tasks, A::Error> {
        let (mut count, mut entries, mut problems) = (0, Vec::new(), FieldProblems::default());
        loop {
            // Those that are too many, and those behind enough problems, are only counted.
            if count >= JOB_TASKS_MAX || problems.is_full() {
                if list.next_element::<IgnoredAny>()?.is_none() {
                    break;
                }
                count += 1;
                continue;
            }
            self.0.heavy = format!("tasks[{count}]");
            self.0.room = Room::default();
            let seed = ObjectSeed { reader: &mut *self.0, shape: Shape::Task };
            let Some(read) = list.next_element_seed(seed)? else { break };
            let place = format!("tasks[{count}]");
            count += 1;
            match read {
                Ok(File { fields, input, tasks }) => {
                    let mut task = Document::of(place, fields, input, tasks, &mut problems);
                    entries.push(TaskEntry::read(&mut task));
                    task.close_as::<TaskEntry>();
                }
                Err(kind) => {
                    problems.add(place, code::INVALID_TYPE, format!("must be an object, not {kind}"));
                }
            }
        }
        Ok(Tasks::List { count, entries, problems })
    }
}
