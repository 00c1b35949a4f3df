//! Lists of objects: what is asked for, which objects are on a page, and the page in XML.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::fault::{S3Fault, S3FaultCode};
use super::object::S3_NAMESPACE;
use crate::wire_answer::{APPLICATION_XML, WireAnswer};
use crate::wire_date::iso_date;
use crate::xml::XmlWriter;

/// The entries of one page.
pub const LIST_KEYS_MAX: u32 = 1_000;

/// What stays as it is when a client asks for keys in the form of URLs.
const URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A request for a page of objects, `ListObjectsV2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListObjects {
    pub prefix: String,
    pub delimiter: Option<String>,
    /// At least one.
    pub keys_max: u32,
    pub start_after: Option<String>,
    continuation: Option<Continuation>,
    url_encoded: bool,
}

/// Where the page before ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Continuation {
    token: String,
    /// A key, or a common prefix with its delimiter.
    after: String,
}

/// One object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub size_bytes: u64,
    pub modified_millis: i64,
    /// With its quotes.
    pub etag: String,
}

/// A page: objects and common prefixes, each in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectPage {
    pub objects: Vec<ListedObject>,
    pub common_prefixes: Vec<String>,
    /// The last entry, if more follow.
    next_after: Option<String>,
}

impl ListObjects {
    pub(super) fn read(parameters: &[(String, String)]) -> Result<Self, S3Fault> {
        let value = |name| {
            let found = parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            found.filter(|value| !value.is_empty())
        };
        let keys_max = value("max-keys").map_or(Ok(LIST_KEYS_MAX), |text| {
            let number =
                text.parse::<u32>().ok().filter(|number| (1..=i32::MAX.unsigned_abs()).contains(number));
            number.ok_or_else(|| invalid(&format!("max-keys must be between 1 and {LIST_KEYS_MAX}")))
        })?;
        let url_encoded = match value("encoding-type").as_deref() {
            None => false,
            Some("url") => true,
            Some(_) => return Err(invalid("Invalid Encoding Method specified in Request")),
        };
        let continuation = value("continuation-token").map(|token| {
            let after = URL_SAFE_NO_PAD.decode(&token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let after = after.ok_or_else(|| invalid("The continuation token provided is incorrect"))?;
            Ok(Continuation { token, after })
        });
        Ok(Self {
            prefix: value("prefix").unwrap_or_default(),
            delimiter: value("delimiter"),
            // More are not refused, they come on further pages.
            keys_max: keys_max.min(LIST_KEYS_MAX),
            start_after: value("start-after"),
            continuation: continuation.transpose()?,
            url_encoded,
        })
    }

    /// No key up to this one is on the page: where a search through keys may begin.
    pub fn after(&self) -> Option<&str> {
        self.continuation
            .as_ref()
            .map(|continuation| continuation.after.as_str())
            .or(self.start_after.as_deref())
    }

    /// The page out of `objects`, which come in the order of their keys. Those outside the prefix or before the page are passed over.
    pub fn page(&self, objects: impl IntoIterator<Item = ListedObject>) -> ObjectPage {
        let mut page = ObjectPage::default();
        let mut last: Option<String> = None;
        for object in objects {
            let Some(rest) = object.key.strip_prefix(&self.prefix) else { continue };
            if self.after().is_some_and(|after| object.key.as_str() <= after) {
                continue;
            }
            let common = self.delimiter.as_deref().and_then(|delimiter| {
                let at = rest.find(delimiter)?;
                Some(object.key[..self.prefix.len() + at + delimiter.len()].to_owned())
            });
            // A prefix that closed the page before, or that is on this one already, stands for this key too.
            let told_before = self.continuation.as_ref().map(|continuation| &continuation.after);
            if common.is_some() && (common.as_ref() == told_before || common == last) {
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() == self.keys_max as usize {
                page.next_after = last;
                break;
            }
            last = Some(common.clone().unwrap_or_else(|| object.key.clone()));
            match common {
                Some(prefix) => page.common_prefixes.push(prefix),
                None => page.objects.push(object),
            }
        }
        page
    }

    /// The page in XML.
    pub fn answer(&self, bucket: &str, page: &ObjectPage) -> WireAnswer {
        let shown = |text: &str| -> String {
            if self.url_encoded { utf8_percent_encode(text, URL).to_string() } else { text.to_owned() }
        };
        let body = XmlWriter::document("ListBucketResult", Some(S3_NAMESPACE), |writer| {
            writer.text("Name", bucket);
            writer.text("Prefix", &shown(&self.prefix));
            writer.optional("Delimiter", self.delimiter.as_deref().map(shown).as_deref());
            writer.text("MaxKeys", &self.keys_max.to_string());
            writer.optional("EncodingType", self.url_encoded.then_some("url"));
            writer.text("KeyCount", &(page.objects.len() + page.common_prefixes.len()).to_string());
            writer.text("IsTruncated", if page.next_after.is_some() { "true" } else { "false" });
            let token = self.continuation.as_ref().map(|continuation| continuation.token.as_str());
            writer.optional("ContinuationToken", token);
            let next = page.next_after.as_ref().map(|after| URL_SAFE_NO_PAD.encode(after));
            writer.optional("NextContinuationToken", next.as_deref());
            writer.optional("StartAfter", self.start_after.as_deref().map(shown).as_deref());
            for object in &page.objects {
                writer.element("Contents", |writer| {
                    writer.text("Key", &shown(&object.key));
                    writer.text("LastModified", &iso_date(object.modified_millis));
                    writer.text("ETag", &object.etag);
                    writer.text("Size", &object.size_bytes.to_string());
                    writer.text("StorageClass", "STANDARD");
                });
            }
            for prefix in &page.common_prefixes {
                writer.element("CommonPrefixes", |writer| writer.text("Prefix", &shown(prefix)));
            }
        });
        WireAnswer::xml(200, APPLICATION_XML, body)
    }
}

impl ObjectPage {
    /// The token for the page that follows, if one does.
    pub fn next_token(&self) -> Option<String> {
        self.next_after.as_ref().map(|after| URL_SAFE_NO_PAD.encode(after))
    }
}

fn invalid(message: &str) -> S3Fault {
    S3Fault::new(S3FaultCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 8] = ["a", "b/1", "b/2", "b/c/3", "b0", "d/4", "e", "é f"];

    fn objects() -> impl Iterator<Item = ListedObject> {
        KEYS.into_iter().map(|key| ListedObject {
            key: key.to_owned(),
            size_bytes: 1,
            modified_millis: 0,
            etag: "\"t\"".to_owned(),
        })
    }

    fn read(parameters: &[(&str, &str)]) -> Result<ListObjects, S3Fault> {
        let owned: Vec<_> = parameters.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        ListObjects::read(&owned)
    }

    /// All entries of all pages in order, prefixes with a star.
    fn all_pages(parameters: &[(&str, &str)]) -> Vec<String> {
        let mut entries = Vec::new();
        let mut token = String::new();
        loop {
            let mut parameters = parameters.to_vec();
            parameters.push(("continuation-token", &token));
            let page = read(&parameters).unwrap().page(objects());
            let mut shown: Vec<String> = page.objects.iter().map(|object| object.key.clone()).collect();
            shown.extend(page.common_prefixes.iter().map(|prefix| format!("{prefix}*")));
            shown.sort();
            entries.extend(shown);
            match page.next_token() {
                Some(next) => token = next,
                None => return entries,
            }
        }
    }

    #[test]
    fn pages_of_any_size_hold_the_same_entries() {
        for (parameters, expected) in [
            (vec![], KEYS.to_vec()),
            (vec![("prefix", "b")], vec!["b/1", "b/2", "b/c/3", "b0"]),
            (vec![("delimiter", "/")], vec!["a", "b/*", "b0", "d/*", "e", "é f"]),
            (vec![("delimiter", "/"), ("prefix", "b/")], vec!["b/1", "b/2", "b/c/*"]),
            (vec![("start-after", "b/2")], vec!["b/c/3", "b0", "d/4", "e", "é f"]),
            (vec![("start-after", "b/2"), ("delimiter", "/")], vec!["b/*", "b0", "d/*", "e", "é f"]),
            (vec![("prefix", "x")], vec![]),
        ] {
            for keys_max in ["1", "2", "3", "1000"] {
                let mut parameters = parameters.clone();
                parameters.push(("max-keys", keys_max));
                assert_eq!(all_pages(&parameters), expected, "{parameters:?}");
            }
        }
    }

    #[test]
    fn parameters_have_bounds() {
        for (name, value, accepted) in [
            ("max-keys", "1", true),
            ("max-keys", "1000", true),
            ("max-keys", "5000", true),
            ("max-keys", "0", false),
            ("max-keys", "-1", false),
            ("max-keys", "many", false),
            ("encoding-type", "url", true),
            ("encoding-type", "json", false),
            ("continuation-token", "YQ", true),
            ("continuation-token", "!", false),
            ("continuation-token", "_w", false),
        ] {
            assert_eq!(read(&[(name, value)]).is_ok(), accepted, "{name}={value}");
        }
        assert_eq!(read(&[("max-keys", "5000")]).unwrap().keys_max, LIST_KEYS_MAX);
    }
}
