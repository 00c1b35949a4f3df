//! A scan: the rows of a partition in the order of their sort keys.

use tidemill_engine::backend::Fault;

use crate::fault::unavailable;
use crate::rows::row_store::{RowAt, RowStore};
use crate::table::item::{Item, read_text, text};

/// Goes through the rows of a partition, page by page.
pub(crate) struct Scan {
    pk: String,
    prefix: String,
    /// Only what lies behind it, or before it when it goes backward.
    beyond: Option<String>,
    backward: bool,
    /// Whether rows that are gone count.
    with_gone: bool,
    ready: std::vec::IntoIter<Item>,
    last: Option<Item>,
    is_over: bool,
}

impl Scan {
    pub(crate) fn all(pk: String) -> Self {
        Self {
            pk,
            prefix: String::new(),
            beyond: None,
            backward: false,
            with_gone: false,
            ready: Vec::new().into_iter(),
            last: None,
            is_over: false,
        }
    }

    /// Those that are gone too.
    pub(crate) fn with_gone(pk: String) -> Self {
        Self { with_gone: true, ..Self::all(pk) }
    }

    /// Those whose sort keys begin with `prefix`, and lie behind `after`.
    pub(crate) fn prefix(pk: String, prefix: String, after: Option<String>) -> Self {
        Self { prefix, beyond: after, ..Self::all(pk) }
    }

    /// Those before `before`, the last one first.
    pub(crate) fn backward(pk: String, before: Option<String>) -> Self {
        Self { beyond: before, backward: true, ..Self::all(pk) }
    }

    /// The next row with its sort key. What is gone is passed over, unless it counts.
    pub(crate) async fn next(&mut self, rows: &RowStore) -> Result<Option<(String, RowAt)>, Fault> {
        loop {
            for item in self.ready.by_ref() {
                let sk = read_text(&item, "SK")?.to_owned();
                let is_beyond = self
                    .beyond
                    .as_ref()
                    .is_none_or(|beyond| if self.backward { sk < *beyond } else { sk > *beyond });
                let found = rows.read(&item).await?;
                if is_beyond && sk.starts_with(&self.prefix) && (self.with_gone || found.row.is_some()) {
                    return Ok(Some((sk, found)));
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.page(rows).await?;
        }
    }

    async fn page(&mut self, rows: &RowStore) -> Result<(), Fault> {
        let query = rows.client.query().table_name(&*rows.table).consistent_read(true);
        let query = query.expression_attribute_values(":pk", text(self.pk.clone()));
        let query = query.scan_index_forward(!self.backward).set_exclusive_start_key(self.last.take());
        // The keys behind `after` are not a prefix's; what is read too much is passed over.
        let query = match (&self.beyond, self.prefix.is_empty()) {
            (Some(beyond), _) => {
                let sign = if self.backward { "<" } else { ">" };
                let query = query.key_condition_expression(format!("PK = :pk AND SK {sign} :sk"));
                query.expression_attribute_values(":sk", text(beyond.clone()))
            }
            (None, true) => query.key_condition_expression("PK = :pk"),
            (None, false) => {
                let query = query.key_condition_expression("PK = :pk AND begins_with(SK, :sk)");
                query.expression_attribute_values(":sk", text(self.prefix.clone()))
            }
        };
        let answer = query.send().await.map_err(|error| unavailable("Query", error))?;
        self.last = answer.last_evaluated_key;
        let items = answer.items.unwrap_or_default();
        // Behind the prefix there is nothing more to find.
        let is_past = !self.backward
            && items
                .last()
                .map(|item| read_text(item, "SK"))
                .transpose()?
                .is_some_and(|sk| !sk.starts_with(&self.prefix) && sk > self.prefix.as_str());
        self.is_over = self.last.is_none() || is_past;
        self.ready = items.into_iter();
        Ok(())
    }
}
