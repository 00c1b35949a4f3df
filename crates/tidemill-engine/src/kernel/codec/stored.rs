//! How values are written as bytes in control entries and rows: the trait, the tables' grammar and the plain values.
//!
//! Structs and choices are tables of numbered fields (`stored_work`, `stored_triage`): they are what is on disk, apart from the
//! types that they fill, so that those can change. Numbers and tags are a promise to every data directory that exists:
//! add, never reorder, never reuse. Each entry and row starts with a version byte, written by the caller. Version 1 had no
//! numbers, and its fields stood in a fixed order; `take_v1` reads it.

use std::sync::Arc;

use crate::kernel::commit::MessageId;
use crate::kernel::state::trail::Seq;
use crate::outbound::DeliveryId;
use crate::scripts::execution::ExecutionId;
use tidemill_model::{
    AppName, EntityId, EntityType, EventId, EventType, Fence, JobId, Json, MicroUsd, RequestId, ScriptId,
    SessionId, SubscriptionId, TaskId, TaskName, TenantId, Timestamp,
};

use crate::kernel::codec::bytes::{BadBytes, Reader, put_text, put_varint, unzigzag, zigzag};
use crate::kernel::codec::wire::{
    BYTES, LIST, NUMBER, SIXTEEN, STRUCT, next_field, present, put_field, skip, take_field,
};

/// A value that can be written and read back.
pub trait Stored: Sized {
    /// How the value ends, for readers that do not know it: one of the forms of `wire`.
    const FORM: u8;
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes>;
    /// Reads it as version 1 wrote it. Plain values are the same.
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::take(from)
    }
    /// Whether a field with this value is left out.
    fn is_absent(&self) -> bool {
        false
    }
    /// What a field says that was left out; `None` when it never is.
    fn absent() -> Option<Self> {
        None
    }
}

/// Reads one value that fills `bytes`.
pub fn read_all<T: Stored>(bytes: &[u8]) -> Result<T, BadBytes> {
    whole(bytes, T::take)
}

/// Reads one value that fills `bytes`, as version 1 wrote it.
pub fn read_all_v1<T: Stored>(bytes: &[u8]) -> Result<T, BadBytes> {
    whole(bytes, T::take_v1)
}

fn whole<T>(bytes: &[u8], take: impl FnOnce(&mut Reader<'_>) -> Result<T, BadBytes>) -> Result<T, BadBytes> {
    let mut reader = Reader::new(bytes);
    let value = take(&mut reader)?;
    if reader.is_at_end() { Ok(value) } else { Err(BadBytes("goes on after its end")) }
}

/// A struct: its fields by number. Version 1 had them in this order, except for those that came `later`; where it did
/// not, `v1` names the reader.
macro_rules! stored_struct {
    ($name:ident { $($number:literal = $field:ident),+ $(,)? } $(later { $($more:literal = $added:ident),+ $(,)? })?) => {
        stored_struct!(@ $name { $($number = $field,)+ $($($more = $added,)+)? } {
            fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                $(let $field = Stored::take_v1(from)?;)+
                $($(let $added = present(None, "of version 1 lacks what has no default")?;)+)?
                Ok(Self { $($field,)+ $($($added,)+)? })
            }
        });
    };
    ($name:ident { $($number:literal = $field:ident),+ $(,)? } v1 $old:path) => {
        stored_struct!(@ $name { $($number = $field,)+ } {
            fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                $old(from)
            }
        });
    };
    (@ $name:ident { $($number:literal = $field:ident,)+ } { $($old:tt)+ }) => {
        impl Stored for $name {
            const FORM: u8 = STRUCT;
            fn put(&self, out: &mut Vec<u8>) {
                $(put_field(out, $number, &self.$field);)+
                out.push(END);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                $(let mut $field = None;)+
                while let Some((number, form)) = next_field(from)? {
                    match number {
                        $($number => $field = Some(take_field(from, form)?),)+
                        _ => skip(from, form)?,
                    }
                }
                Ok(Self {
                    $($field: present($field, concat!("lacks ", stringify!($name), ".", stringify!($field)))?,)+
                })
            }
            $($old)+
        }
    };
}

/// A choice: variants by tag, and the fields of each by number. An unknown tag cannot be passed over.
macro_rules! stored_choice {
    ($name:ident { $($tag:literal => $variant:ident
        $( { $($number:literal = $field:ident),+ $(,)? } )?
        $( ( $($place:literal = $part:ident),+ $(,)? ) )?
    ),+ $(,)? }) => {
        impl Stored for $name {
            const FORM: u8 = CHOICE;
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $( { $($field),+ } )? $( ( $($part),+ ) )? => {
                        put_varint(out, $tag);
                        $( $(put_field(out, $number, $field);)+ )?
                        $( $(put_field(out, $place, $part);)+ )?
                    })+
                }
                out.push(END);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                match from.varint()? {
                    $($tag => {
                        $( $(let mut $field = None;)+ )?
                        $( $(let mut $part = None;)+ )?
                        while let Some((number, form)) = next_field(from)? {
                            match number {
                                $( $($number => $field = Some(take_field(from, form)?),)+ )?
                                $( $($place => $part = Some(take_field(from, form)?),)+ )?
                                _ => skip(from, form)?,
                            }
                        }
                        Ok(Self::$variant
                            $( { $($field: present($field, concat!("lacks ", stringify!($name), ".", stringify!($field)))?),+ } )?
                            $( ( $(present($part, concat!("lacks ", stringify!($name), ".", stringify!($part)))?),+ ) )?
                        )
                    })+
                    _ => Err(BadBytes(concat!("holds an unknown kind of ", stringify!($name)))),
                }
            }
            fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                match from.varint()? {
                    $($tag => {
                        $( $(let $field = Stored::take_v1(from)?;)+ )?
                        $( $(let $part = Stored::take_v1(from)?;)+ )?
                        Ok(Self::$variant $( { $($field),+ } )? $( ( $($part),+ ) )?)
                    })+
                    _ => Err(BadBytes(concat!("holds an unknown kind of ", stringify!($name)))),
                }
            }
        }
    };
}

/// One of several words, as a number. What has the number 0 is left out.
macro_rules! stored_word {
    ($name:ident { $($tag:literal => $variant:ident),+ $(,)? }) => {
        impl Stored for $name {
            const FORM: u8 = NUMBER;
            fn put(&self, out: &mut Vec<u8>) {
                put_varint(out, match self { $(Self::$variant => $tag),+ });
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                match from.varint()? {
                    $($tag => Ok(Self::$variant),)+
                    _ => Err(BadBytes(concat!("holds an unknown kind of ", stringify!($name)))),
                }
            }
            fn is_absent(&self) -> bool {
                matches!(self, $(Self::$variant)|+ if (match self { $(Self::$variant => $tag),+ }) == 0)
            }
            fn absent() -> Option<Self> {
                $(if $tag == 0 { return Some(Self::$variant); })+
                None
            }
        }
    };
}

macro_rules! stored_text {
    ($($name:ident),+ $(,)?) => {
        $(impl Stored for $name {
            const FORM: u8 = BYTES;
            fn put(&self, out: &mut Vec<u8>) {
                put_text(out, self.as_str());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                from.text().map($name::trusted)
            }
        })+
    };
}

/// What stands for a number, with the ways to and from it.
macro_rules! stored_number {
    ($($name:ident: $number:ty, |$value:ident| $to:expr, $from:expr;)+) => {
        $(impl Stored for $name {
            const FORM: u8 = <$number as Stored>::FORM;
            fn put(&self, out: &mut Vec<u8>) {
                let $value = self;
                <$number as Stored>::put(&$to, out);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                <$number as Stored>::take(from).map($from)
            }
            fn is_absent(&self) -> bool {
                let $value = self;
                <$number as Stored>::is_absent(&$to)
            }
            fn absent() -> Option<Self> {
                <$number as Stored>::absent().map($from)
            }
        })+
    };
}

pub(super) use {stored_choice, stored_number, stored_struct, stored_text, stored_word};

stored_text!(
    TenantId,
    AppName,
    RequestId,
    TaskId,
    TaskName,
    EntityId,
    EntityType,
    EventType,
    SessionId,
    ScriptId,
    SubscriptionId,
    Json,
);

stored_number! {
    JobId: u128, |job| job.as_u128(), Self::from_u128;
    ExecutionId: u128, |execution| execution.as_u128(), Self::from_u128;
    EventId: u128, |event| event.as_u128(), Self::from_u128;
    MessageId: u128, |message| message.0, Self;
    DeliveryId: EventId, |delivery| delivery.0, Self;
    Fence: u64, |fence| fence.0, Self;
    MicroUsd: u64, |micros| micros.0, Self;
    Seq: u64, |seq| seq.0, Self;
}

impl Stored for u64 {
    const FORM: u8 = NUMBER;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.varint()
    }
    fn is_absent(&self) -> bool {
        *self == 0
    }
    fn absent() -> Option<Self> {
        Some(0)
    }
}

impl Stored for u32 {
    const FORM: u8 = NUMBER;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::try_from(from.varint()?).map_err(|_| BadBytes("holds a number of more than 32 bits"))
    }
    fn is_absent(&self) -> bool {
        *self == 0
    }
    fn absent() -> Option<Self> {
        Some(0)
    }
}

impl Stored for i32 {
    const FORM: u8 = NUMBER;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, zigzag(i64::from(*self)));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::try_from(unzigzag(from.varint()?)).map_err(|_| BadBytes("holds a number of more than 32 bits"))
    }
    fn is_absent(&self) -> bool {
        *self == 0
    }
    fn absent() -> Option<Self> {
        Some(0)
    }
}

impl Stored for u128 {
    const FORM: u8 = SIXTEEN;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.array().map(Self::from_le_bytes)
    }
}

impl Stored for bool {
    const FORM: u8 = NUMBER;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadBytes("holds neither yes nor no")),
        }
    }
    fn is_absent(&self) -> bool {
        !self
    }
    fn absent() -> Option<Self> {
        Some(false)
    }
}

impl Stored for Timestamp {
    const FORM: u8 = NUMBER;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.millis());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::new("timestamp", from.varint()?).map_err(|_| BadBytes("holds a time without 13 digits"))
    }
}

impl Stored for [u8; 32] {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(32);
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        if from.varint()? == 32 { from.array() } else { Err(BadBytes("holds a digest without 32 bytes")) }
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.array()
    }
}

impl Stored for Arc<str> {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.text().map(Arc::from)
    }
}

impl Stored for String {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.text().map(str::to_owned)
    }
}

impl Stored for Arc<[u8]> {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let length = usize::try_from(from.varint()?).map_err(|_| BadBytes("holds bytes without end"))?;
        from.take(length).map(Arc::from)
    }
}

impl<T: Stored> Stored for Arc<T> {
    const FORM: u8 = T::FORM;
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take(from).map(Self::new)
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take_v1(from).map(Self::new)
    }
}

impl<T: Stored> Stored for Box<T> {
    const FORM: u8 = T::FORM;
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take(from).map(Self::new)
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take_v1(from).map(Self::new)
    }
}

/// Only as a field, which is left out for `None`.
impl<T: Stored> Stored for Option<T> {
    const FORM: u8 = T::FORM;
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take(from).map(Some)
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(if bool::take(from)? { Some(T::take_v1(from)?) } else { None })
    }
    fn is_absent(&self) -> bool {
        self.is_none()
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// How many values follow. Each takes at least a byte, so a damaged number cannot ask for more memory than there are bytes.
pub(super) fn take_count(from: &mut Reader<'_>) -> Result<usize, BadBytes> {
    let count = usize::try_from(from.varint()?).ok().filter(|count| *count <= from.rest().len());
    count.ok_or(BadBytes("holds a list without end"))
}

impl<T: Stored> Stored for Vec<T> {
    const FORM: u8 = LIST;
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.push(T::FORM);
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let count = take_count(from)?;
        if from.byte()? != T::FORM {
            return Err(BadBytes("holds a list of another form"));
        }
        (0..count).map(|_| T::take(from)).collect()
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        (0..take_count(from)?).map(|_| T::take_v1(from)).collect()
    }
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    const FORM: u8 = STRUCT;
    fn put(&self, out: &mut Vec<u8>) {
        put_field(out, 1, &self.0);
        put_field(out, 2, &self.1);
        out.push(super::wire::END);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let (mut one, mut other) = (None, None);
        while let Some((number, form)) = next_field(from)? {
            match number {
                1 => one = Some(take_field(from, form)?),
                2 => other = Some(take_field(from, form)?),
                _ => skip(from, form)?,
            }
        }
        Ok((present(one, "lacks half of a pair")?, present(other, "lacks half of a pair")?))
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok((Stored::take_v1(from)?, Stored::take_v1(from)?))
    }
}
