//! Reading properties that any sender may have written: what is strange is left out, and the rest is read.

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use tidemill_model::Json;

/// A value of a kind that may be any other: then it counts as left out.
pub(crate) fn if_readable<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(Json::deserialize(deserializer)?.read().ok())
}

/// The same, with a default in its place.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(if_readable(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use tidemill_model::ErrorCategory;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Said {
        #[serde(deserialize_with = "if_readable")]
        category: Option<ErrorCategory>,
        #[serde(deserialize_with = "or_default")]
        count: u32,
    }

    #[test]
    fn what_is_strange_is_left_out() {
        let auth = Some(ErrorCategory::Auth);
        for (text, category, count) in [
            (r#"{"category":"auth","count":2}"#, auth, 2),
            (r#"{"category":"theirs","count":2}"#, None, 2),
            (r#"{"category":{"a":1},"count":"two"}"#, None, 0),
            (r#"{"category":null}"#, None, 0),
            ("{}", None, 0),
        ] {
            let said: Said = Json::trusted(text).read().unwrap();
            assert_eq!(said, Said { category, count }, "{text}");
        }
    }
}
