//! Large values: out to the blob store before a command names them, and back in on the way to a reader.

use tidemill_model::events::overflow::{self, BadOverflow, payload_key};
use tidemill_model::events::properties::OverflowRef;
use tidemill_model::{Event, EventId, Json, TenantId};

use crate::engine::{Engine, EngineError};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::Prepared;

/// Properties that fit into an event, and what has to be stored before they may be used.
pub(crate) struct Packed {
    pub(crate) properties: Json,
    /// Where the rest goes, and the rest itself.
    pub(crate) payload: Option<(OverflowRef, Json)>,
}

impl<B: Backend> Engine<B> {
    /// Splits an event that is too large. `event` is as it will be written, but for its times.
    pub(crate) fn pack(&self, event: Event) -> Result<Packed, EngineError> {
        match event.overflow(&self.inner.bucket) {
            Ok(None) => Ok(Packed { properties: event.properties, payload: None }),
            Ok(Some(split)) => {
                let place = OverflowRef {
                    bucket: self.inner.bucket.clone(),
                    key: payload_key(&event.entity.id, event.id),
                };
                Ok(Packed { properties: split.properties, payload: Some((place, split.payload)) })
            }
            Err(BadOverflow::TooLarge { bytes }) => Err(EngineError::TooLarge {
                field: "properties".into(),
                size_bytes: bytes,
                limit_bytes: overflow::DETAIL_BYTES_MAX,
            }),
            Err(BadOverflow::Reserved) => {
                let field = format!("properties.{}", overflow::OVERFLOW_FIELD);
                Err(EngineError::invalid(field, "is reserved"))
            }
            Err(BadOverflow::Unreadable { problem }) => {
                Err(EngineError::invalid("properties", format!("cannot be read: {problem}")))
            }
        }
    }

    /// Stores what an event is too small for. The blob is durable when this returns.
    pub(crate) async fn store_payload(
        &self,
        tenant: &TenantId,
        place: &OverflowRef,
        payload: Json,
    ) -> Result<(), EngineError> {
        // The payload may be large: its text goes before the bytes are put together with what a blob has besides.
        let bytes = payload.as_str().as_bytes().to_vec();
        drop(payload);
        Ok(self.inner.backend.put_blob(tenant.clone(), place.key.clone(), bytes).await?)
    }

    /// Stores what has to be stored and gives what a command carries.
    pub(crate) async fn ship(
        &self,
        tenant: &TenantId,
        id: EventId,
        packed: Packed,
    ) -> Result<Prepared, EngineError> {
        let Packed { properties, payload } = packed;
        let Some((place, payload)) = payload else { return Ok(Prepared { id: None, properties }) };
        self.store_payload(tenant, &place, payload).await?;
        Ok(Prepared { id: Some(id), properties })
    }

    /// Puts the moved fields of an event back. A missing blob is an error, not a missing field.
    pub async fn rehydrate(&self, event: Event) -> Result<Event, EngineError> {
        let Some(place) = overflow::reference(&event.properties)? else { return Ok(event) };
        let Some(bytes) = self.inner.backend.blob(event.tenant.clone(), place.key.clone()).await? else {
            return Err(EngineError::BlobMissing { key: place.key });
        };
        let unreadable = |problem: String| Fault::Damaged(format!("blob {}: {problem}", place.key));
        let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
        let payload = Json::parse(text).map_err(|error| unreadable(error.to_string()))?;
        let properties = overflow::rehydrate(&event.properties, &payload)?;
        Ok(Event { properties, ..event })
    }
}
