//! The port through which deliveries leave.

use std::time::Duration;

use tidemill_model::{Json, TenantId};

use crate::outbound::delivery::{DeliveryId, Target};

/// One try of a delivery.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// The same for every try, and for every replay of the same letter another one.
    pub id: DeliveryId,
    pub tenant: TenantId,
    pub target: Target,
    pub body: Json,
    /// Counts from 1.
    pub attempt: u32,
}

/// Why a try failed, in words that hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// Takes parcels to where they belong, and lets time pass between tries.
pub trait Sender: Send + Sync + 'static {
    /// Resolves once the other side has taken it. It ends by itself after a while, whatever the other side does.
    fn send(&self, parcel: Parcel) -> impl Future<Output = Result<(), SendError>> + Send;

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}
