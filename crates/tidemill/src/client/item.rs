//! An item of a list, letter by letter as the server wrote it.
//!
//! Its fields are read one by one: a value that readers of JSON cannot read (an older version let it in) costs neither the
//! fields beside it nor the list that it is in, and is shown as it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidemill_model::Json;

/// A list as commands print it.
#[derive(Debug, Serialize)]
pub(crate) struct Items<'a, T> {
    pub(crate) items: &'a [T],
}

#[derive(Debug, Clone)]
pub(crate) struct Item {
    whole: Json,
    fields: BTreeMap<String, Json>,
}

impl Item {
    /// A field that is a text; empty if it is anything else.
    pub(crate) fn text(&self, name: &str) -> String {
        self.read(name).unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.read(name)
    }

    /// A field as typed data, if it is there and can be read so.
    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Option<T> {
        self.fields.get(name)?.read().ok()
    }

    /// A field as JSON without spaces, or as it is if that cannot be made; `null` if it is not there.
    pub(crate) fn shown(&self, name: &str) -> String {
        let Some(field) = self.fields.get(name) else { return "null".to_owned() };
        let value: Result<serde_json::Value, _> = field.read();
        value.map_or_else(|_| field.as_str().to_owned(), |value| value.to_string())
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(deserializer)?;
        let fields = whole.read().map_err(serde::de::Error::custom)?;
        Ok(Self { whole, fields })
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.whole.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_costs_nothing_else() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for (bad, shown) in
            [("1e999", "1e999"), (r#""\ud800""#, r#""\ud800""#), (&*deep, &*deep), ("[ 1 ]", "[1]")]
        {
            let text = format!(r#"[{{"name":"a","attempt":2,"output":{bad}}}]"#);
            let items: Vec<Item> = serde_json::from_str(&text).unwrap();
            let [item] = &items[..] else { panic!("one") };
            assert_eq!((item.text("name"), item.number("attempt")), ("a".to_owned(), Some(2)));
            assert_eq!((item.shown("output"), item.shown("none")), (shown.to_owned(), "null".to_owned()));
            assert_eq!((item.text("attempt"), item.text("none")), (String::new(), String::new()));
            assert_eq!(serde_json::to_string(&items).unwrap(), text);
        }
        assert!(serde_json::from_str::<Item>("7").is_err());
    }
}
