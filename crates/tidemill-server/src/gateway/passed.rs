//! A request that passed the door.

use crate::admission::caller::Caller;
use crate::app::App;
use crate::gateway::GatewayNames;

/// A request of a client of AWS whose signature and role were checked. What it asks for is not.
pub(crate) struct Passed<'p> {
    pub(crate) app: &'p App,
    pub(crate) caller: &'p Caller,
    pub(crate) names: &'p GatewayNames,
    /// For the answer.
    pub(crate) request_id: &'p str,
    /// Without the frames of chunks.
    pub(crate) body: &'p [u8],
}
