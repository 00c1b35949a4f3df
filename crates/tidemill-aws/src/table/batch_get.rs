//! Many items of the table at once.

use aws_sdk_dynamodb::types::KeysAndAttributes;
use tidemill_engine::backend::Fault;

use crate::fault::unavailable;
use crate::service_pause::ServicePause;
use crate::table::item::Item;

/// Those of at most a hundred items that are there, in no order and strongly consistent; only some of their attributes if
/// they are named. What did not fit into an answer is asked for again.
pub(crate) async fn batch_get(
    client: &aws_sdk_dynamodb::Client,
    table: &str,
    mut wanted: Vec<Item>,
    attributes: Option<&str>,
) -> Result<Vec<Item>, Fault> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut backoff = ServicePause::default();
    while !wanted.is_empty() {
        let keys = KeysAndAttributes::builder().set_keys(Some(wanted)).consistent_read(true);
        let keys = keys.set_projection_expression(attributes.map(str::to_owned)).build();
        let keys = keys.map_err(|error| unavailable("BatchGetItem", error))?;
        let answer = client.batch_get_item().request_items(table, keys).send().await;
        let answer = answer.map_err(|error| unavailable("BatchGetItem", error))?;
        found.extend(answer.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default());
        let mut rest = answer.unprocessed_keys.unwrap_or_default();
        wanted = rest.remove(table).map(|rest| rest.keys).unwrap_or_default();
        if !wanted.is_empty() {
            backoff.wait().await;
        }
    }
    Ok(found)
}
