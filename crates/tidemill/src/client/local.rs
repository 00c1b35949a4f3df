//! The API in this process: the same routes, called without a socket, on a store that this process has open.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::ScriptCompiler;
use tidemill_model::TenantId;
use tidemill_server::{App, Caller, ServerConfig};
use tower::ServiceExt as _;

use super::{Call, ClientError};
use crate::node::{Node, Triage};

/// The routes over an engine, called as the local user, who may do everything.
#[derive(Clone)]
pub(crate) struct LocalWay {
    router: Router,
    tenant: TenantId,
    place: String,
    start_triage: Arc<dyn Fn() -> Triage + Send + Sync>,
}

impl LocalWay {
    pub(crate) fn new<B: Backend>(
        node: Arc<Node<B>>,
        config: ServerConfig,
        compiler: Arc<dyn ScriptCompiler>,
    ) -> Self {
        let tenant = config.tenant.clone();
        let app = App::with_compiler(node.engine().clone(), config, Some(compiler));
        let router = tidemill_server::router(app);
        let place = node.place().to_owned();
        Self { router, tenant, place, start_triage: Arc::new(move || node.start_triage()) }
    }

    pub(super) fn place(&self) -> String {
        self.place.clone()
    }

    pub(super) fn start_triage(&self) -> Triage {
        (self.start_triage)()
    }

    pub(super) async fn send(&self, call: Call) -> Result<Response<Body>, ClientError> {
        let mut request = call.request("")?;
        request.extensions_mut().insert(Caller::local(self.tenant.clone()));
        Ok(self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {}))
    }
}
