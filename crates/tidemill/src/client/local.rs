//! The API in this process: the same routes, called without a socket, on a store that this process has open.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Response};
use http_body_util::BodyExt as _;
use tidemill_api::JobAccepted;
use tidemill_api::client::{Body, Call, ClientError, bytes_of, json_of, succeeded};
use tidemill_engine::engine::ScriptCompiler;
use tidemill_model::{JobFile, TenantId};
use tidemill_server::{App, Caller, GivenJob, ServerConfig};
use tower::ServiceExt as _;

use crate::home::Home;
use crate::node::{Node, Triage};

/// The routes over an engine, called as the local user, who may do everything.
#[derive(Clone)]
pub(crate) struct LocalWay {
    router: Router,
    tenant: TenantId,
    place: String,
    start_triage: Arc<dyn Fn() -> Triage + Send + Sync>,
    after_change: Option<AfterChange>,
}

/// Waits until what a call changed is known wherever it must be.
pub(crate) type AfterChange = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

impl LocalWay {
    pub(crate) fn new<B: Home>(
        node: Arc<Node<B>>,
        config: ServerConfig,
        compiler: Arc<dyn ScriptCompiler>,
    ) -> Self {
        let tenant = config.tenant.clone();
        let app = App::with_compiler(node.engine(), config, Some(compiler));
        let router = tidemill_server::router(app);
        let place = node.place().to_owned();
        let start_triage = Arc::new(move || node.start_triage());
        Self { router, tenant, place, start_triage, after_change: None }
    }

    /// The same, with what is to be waited for after a change.
    #[cfg(feature = "aws")]
    pub(crate) fn sending(self, after_change: AfterChange) -> Self {
        Self { after_change: Some(after_change), ..self }
    }

    /// Whether nobody but this process can be at work on the store.
    pub(super) fn is_alone(&self) -> bool {
        self.after_change.is_none()
    }

    pub(super) fn place(&self) -> String {
        self.place.clone()
    }

    pub(super) fn start_triage(&self) -> Triage {
        (self.start_triage)()
    }

    pub(super) async fn send(&self, call: Call) -> Result<Response<Body>, ClientError> {
        self.send_with(call, None).await
    }

    /// Submits a job that this process has read and checked. It is not written as JSON to be read and checked again.
    pub(crate) async fn submit(&self, job: JobFile) -> Result<JobAccepted, ClientError> {
        let call = Call::new(Method::POST, "/v1/jobs");
        let answer = succeeded(self.send_with(call, Some(GivenJob(job))).await?).await?;
        json_of(&bytes_of(answer).await?)
    }

    async fn send_with(&self, call: Call, job: Option<GivenJob>) -> Result<Response<Body>, ClientError> {
        let changes = call.method != Method::GET;
        let mut request = call.request("")?.map(axum::body::Body::new);
        if let Some(job) = job {
            request.extensions_mut().insert(job);
        }
        request.extensions_mut().insert(Caller::local(self.tenant.clone()));
        let answer = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        if let Some(after_change) = self.after_change.as_ref().filter(|_| changes) {
            after_change().await;
        }
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}
