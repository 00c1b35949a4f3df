//! Objects that people write, with each field written down once.
//!
//! One line of [`fields!`] says the name of a field in Rust and in files, what it means, and what it may be. The reader, the
//! list of known fields and the JSON Schema are made from these lines, so none of them can lack a field that another has.

use std::marker::PhantomData;

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::authored::document::Document;
use crate::authored::field_problem::FieldProblems;

/// An object whose fields are written down with [`fields!`].
pub(crate) trait Fields: Sized {
    /// What the object is.
    const ABOUT: &'static str;

    /// The names of the fields, in the order in which people see them.
    fn names() -> Vec<&'static str>;

    /// Takes the fields. What is wrong becomes a problem of the document, and the value is something to go on with.
    fn read(document: &mut Document<'_>) -> Self;

    /// Adds the fields to the schema of an object.
    fn describe(generator: &mut SchemaGenerator, shape: &mut ObjectShape);

    /// Reads an object that stands at `place` and has these fields only.
    fn read_at(place: impl Into<String>, value: Value, problems: &mut FieldProblems) -> Option<Self> {
        let mut document = Document::open(place, value, problems)?;
        let read = Self::read(&mut document);
        document.close_as::<Self>();
        Some(read)
    }

    /// The schema of an object that has these fields only.
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let mut shape = ObjectShape::default();
        Self::describe(generator, &mut shape);
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("description".to_owned(), Self::ABOUT.trim().into());
        schema.insert("properties".to_owned(), shape.properties.into());
        schema.insert("additionalProperties".to_owned(), false.into());
        if !shape.required.is_empty() {
            schema.insert("required".to_owned(), json!(shape.required));
        }
        schema.extend(shape.rules);
        schema.into()
    }
}

/// The schema of an object in the making.
#[derive(Default)]
pub(crate) struct ObjectShape {
    pub(crate) properties: Map<String, Value>,
    pub(crate) required: Vec<&'static str>,
    /// What holds for several fields at once, such as `oneOf`.
    pub(crate) rules: Map<String, Value>,
}

/// What a line of [`fields!`] is about: one field, or all fields of another object.
pub(crate) trait Part {
    type Value;

    fn names(&self, names: &mut Vec<&'static str>);

    fn read(self, document: &mut Document<'_>) -> Self::Value;

    fn describe(self, text: &str, generator: &mut SchemaGenerator, shape: &mut ObjectShape);
}

/// One field: its name in files, how it is taken from a document, and the schema of its values.
pub(crate) struct Field<R, S> {
    name: &'static str,
    read: R,
    schema: S,
    is_required: bool,
}

/// A field that `read` takes by its name.
pub(crate) fn field<T, R, S>(name: &'static str, read: R, schema: S) -> Field<R, S>
where
    R: FnOnce(&mut Document<'_>, &'static str) -> T,
    S: FnOnce(&mut SchemaGenerator) -> Schema,
{
    Field { name, read, schema, is_required: false }
}

impl<R, S> Field<R, S> {
    /// The same field, which the schema says to be needed. Its absence is a problem that `read` finds.
    pub(crate) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}

impl<T, R, S> Part for Field<R, S>
where
    R: FnOnce(&mut Document<'_>, &'static str) -> T,
    S: FnOnce(&mut SchemaGenerator) -> Schema,
{
    type Value = T;

    fn names(&self, names: &mut Vec<&'static str>) {
        names.push(self.name);
    }

    fn read(self, document: &mut Document<'_>) -> T {
        (self.read)(document, self.name)
    }

    fn describe(self, text: &str, generator: &mut SchemaGenerator, shape: &mut ObjectShape) {
        let mut schema = (self.schema)(generator);
        schema.insert("description".to_owned(), text.into());
        shape.properties.insert(self.name.to_owned(), schema.to_value());
        if self.is_required {
            shape.required.push(self.name);
        }
    }
}

/// The fields of another object, which stand among the others in the file.
pub(crate) struct FieldsOf<T>(PhantomData<T>);

pub(crate) fn fields_of<T: Fields>() -> FieldsOf<T> {
    FieldsOf(PhantomData)
}

impl<T: Fields> Part for FieldsOf<T> {
    type Value = T;

    fn names(&self, names: &mut Vec<&'static str>) {
        names.extend(T::names());
    }

    fn read(self, document: &mut Document<'_>) -> T {
        T::read(document)
    }

    fn describe(self, _: &str, generator: &mut SchemaGenerator, shape: &mut ObjectShape) {
        T::describe(generator, shape);
    }
}

/// A part that gives a `T`, which tells whose fields [`fields_of`] means.
pub(crate) fn part_of<T, P: Part<Value = T>>(part: P) -> P {
    part
}

/// A struct, with what each of its fields is in a file.
///
/// ```text
/// /// What it means, for Rust and for the schema of files.
/// pub timeout: Option<Millis> = span("timeout", 1_000..=5_000),
/// /// What it means, for Rust and for the schema of answers.
/// pub path: Vec<String> = path() => "What it means, for the schema of files.",
/// /// The fields of another struct, as if they were written here.
/// pub settings: TaskSettings = fields_of(),
/// ```
///
/// Behind the struct, `first f;` looks at the document before anything is taken from it, and `then f;` at what was read, for
/// rules about several fields.
macro_rules! fields {
    (@text [$($doc:tt)*] $text:literal) => { $text };
    (@text [$($doc:tt)*]) => { concat!($($doc),*) };
    (
        $(#[doc = $about:tt])*
        $(#[derive($($derive:tt)+)])?
        $(#[serde($($serde:tt)+)])*
        $(#[schemars($($schemars:tt)+)])*
        $visible:vis struct $Name:ident {
            $(
                $(#[doc = $doc:tt])*
                $(#[serde($($field_serde:tt)+)])*
                $(#[schemars($($field_schemars:tt)+)])*
                $field_visible:vis $field:ident: $type:ty = $part:expr $(=> $text:literal)?
            ),+ $(,)?
        }
        $(first $first:path;)?
        $(then $then:path;)?
    ) => {
        $(#[doc = $about])*
        $(#[derive($($derive)+)])?
        $(#[serde($($serde)+)])*
        $(#[schemars($($schemars)+)])*
        $visible struct $Name {
            $(
                $(#[doc = $doc])*
                $(#[serde($($field_serde)+)])*
                $(#[schemars($($field_schemars)+)])*
                $field_visible $field: $type,
            )+
        }

        impl $crate::authored::fields::Fields for $Name {
            const ABOUT: &'static str = concat!($($about),*);

            fn names() -> Vec<&'static str> {
                let mut names = Vec::new();
                $($crate::authored::fields::Part::names(&$crate::authored::fields::part_of::<$type, _>($part), &mut names);)+
                names
            }

            fn read(document: &mut $crate::authored::document::Document<'_>) -> Self {
                $($first(document);)?
                $(let $field = $crate::authored::fields::Part::read($crate::authored::fields::part_of::<$type, _>($part), document);)+
                let read = Self { $($field),+ };
                $(let read = $then(read, document);)?
                read
            }

            fn describe(
                generator: &mut schemars::SchemaGenerator,
                shape: &mut $crate::authored::fields::ObjectShape,
            ) {
                $(
                    let text = $crate::authored::fields::fields!(@text [$($doc)*] $($text)?).trim();
                    let part = $crate::authored::fields::part_of::<$type, _>($part);
                    $crate::authored::fields::Part::describe(part, text, generator, shape);
                )+
            }
        }
    };
}

/// Gives types the schema of an object with the fields of a [`Fields`], under a name. A function may add what no field says.
macro_rules! described_as {
    ($($type:ty => $($inline:ident)? $name:literal, $fields:ty $(, $refine:path)?;)+) => {
        $(impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                false $(|| stringify!($inline) == "inline")?
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let schema = <$fields as $crate::authored::fields::Fields>::schema(generator);
                $(let schema = $refine(schema, generator);)?
                schema
            }
        })+
    };
}

pub(crate) use {described_as, fields};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authored::field_kinds::{count, flag_or};
    use crate::authored::field_problem::code;

    fields! {
        /// A parcel.
        #[derive(Debug, PartialEq)]
        struct Parcel {
            /// In grams.
            weight: Option<u32> = count("weight", 1..=9),
            size: Size = fields_of(),
        }
    }

    fields! {
        /// How large it is.
        #[derive(Debug, PartialEq)]
        struct Size {
            /// In metres.
            how_high: Option<u32> = count("howHigh", 1..=2) => "In metres, at most two.",
            /// Whether it may be turned.
            may_turn: bool = flag_or("mayTurn", true),
        }
        first needs_height;
        then forget_large;
    }

    fn needs_height(document: &mut Document<'_>) {
        if !document.has("howHigh") {
            document.missing("howHigh");
        }
    }

    fn forget_large(mut size: Size, _: &mut Document<'_>) -> Size {
        size.how_high = size.how_high.filter(|metres| *metres < 2);
        size
    }

    #[test]
    fn one_line_is_the_reader_the_name_and_the_schema_of_a_field() {
        assert_eq!(Parcel::names(), ["weight", "howHigh", "mayTurn"]);
        let mut problems = FieldProblems::default();
        let read = Parcel::read_at("p", json!({ "weight": null, "howHigh": 2 }), &mut problems);
        assert_eq!(read, Some(Parcel { weight: None, size: Size { how_high: None, may_turn: true } }));
        assert_eq!(problems.total, 0);
        Parcel::read_at("p", json!({ "weight": 10, "mayTrun": false }), &mut problems);
        let found: Vec<_> = problems.listed.iter().map(|found| (&*found.path, found.code)).collect();
        let expected = [
            ("p.weight", code::OUT_OF_RANGE),
            ("p.howHigh", code::MISSING_FIELD),
            ("p.mayTrun", code::UNKNOWN_FIELD),
        ];
        assert_eq!(found, expected);
        assert_eq!(problems.listed[2].message, "unknown field; did you mean mayTurn?");
        let schema = Parcel::schema(&mut SchemaGenerator::default()).to_value();
        assert_eq!(schema["description"], "A parcel.");
        assert_eq!(schema["properties"]["weight"]["description"], "In grams.");
        assert_eq!(schema["properties"]["howHigh"]["description"], "In metres, at most two.");
        assert_eq!(schema["properties"]["howHigh"]["maximum"], 2);
    }
}
