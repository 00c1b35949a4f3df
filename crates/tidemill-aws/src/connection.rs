//! The clients of all services, made once.

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use std::time::Duration;

/// How often a call is made at most, with growing pauses, when it is throttled or gets no answer.
const CALL_ATTEMPTS: u32 = 6;
/// Where a stage is if nothing else is said.
const REGION_DEFAULT: &str = "eu-west-1";
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Objects may have many megabytes.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(60);

/// What is known of AWS beforehand. What is not, the standard chain finds: environment, profile, role of the container or
/// machine.
#[derive(Clone, Default)]
pub struct Access {
    pub region: Option<String>,
    /// Another place than AWS itself.
    pub endpoint: Option<String>,
    pub credentials: Option<Credentials>,
}

impl Access {
    /// An access key, with the token that belongs to a temporary one.
    #[must_use]
    pub fn with_key(mut self, id: &str, secret: &str, session: Option<String>) -> Self {
        self.credentials = Some(Credentials::new(id, secret, session, None, "settings"));
        self
    }
}

/// The identity of this process on AWS, and where AWS is.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    pub(crate) s3: aws_sdk_s3::Client,
    pub(crate) bus: aws_sdk_eventbridge::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) sfn: aws_sdk_sfn::Client,
    #[cfg(feature = "deploy")]
    sdk: std::sync::Arc<SdkConfig>,
}

impl Connection {
    /// By the standard chain: environment, profile, role of the container or machine. `AWS_ENDPOINT_URL` names a double.
    pub async fn from_environment() -> Self {
        Self::open(Access::default()).await
    }

    /// By what is known, and the standard chain for the rest.
    pub async fn open(access: Access) -> Self {
        let https = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut config = aws_config::defaults(BehaviorVersion::latest()).http_client(https);
        if let Some(region) = access.region {
            config = config.region(Region::new(region));
        }
        if let Some(endpoint) = access.endpoint {
            config = config.endpoint_url(endpoint);
        }
        if let Some(credentials) = access.credentials {
            config = config.credentials_provider(credentials);
        }
        let mut found = config.load().await;
        if found.region().is_none() {
            found = found.into_builder().region(Region::new(REGION_DEFAULT)).build();
        }
        Self::new(&found)
    }

    /// A double on this machine, with any credentials.
    pub async fn to_double(endpoint: &str) -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(endpoint)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "double"));
        Self::new(&config.load().await)
    }

    /// The region that was found.
    #[cfg(feature = "deploy")]
    pub fn region(&self) -> Option<String> {
        self.sdk.region().map(ToString::to_string)
    }

    /// Made on demand: only a deployment needs it.
    #[cfg(feature = "deploy")]
    pub(crate) fn cloudformation(&self) -> aws_sdk_cloudformation::Client {
        let retry = RetryConfig::standard().with_max_attempts(CALL_ATTEMPTS);
        let timeout = TimeoutConfig::builder().operation_attempt_timeout(OBJECT_TIMEOUT).build();
        let config = aws_sdk_cloudformation::config::Builder::from(&*self.sdk);
        aws_sdk_cloudformation::Client::from_conf(config.retry_config(retry).timeout_config(timeout).build())
    }

    fn new(config: &SdkConfig) -> Self {
        let retry = RetryConfig::standard().with_max_attempts(CALL_ATTEMPTS);
        let timeout = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
        let long = TimeoutConfig::builder().operation_attempt_timeout(OBJECT_TIMEOUT).build();
        let is_double = config.endpoint_url().is_some();
        let dynamo = aws_sdk_dynamodb::config::Builder::from(config);
        let s3 = aws_sdk_s3::config::Builder::from(config).force_path_style(is_double);
        let bus = aws_sdk_eventbridge::config::Builder::from(config);
        let sqs = aws_sdk_sqs::config::Builder::from(config);
        let sfn = aws_sdk_sfn::config::Builder::from(config);
        Self {
            dynamo: aws_sdk_dynamodb::Client::from_conf(
                dynamo.retry_config(retry.clone()).timeout_config(timeout.clone()).build(),
            ),
            s3: aws_sdk_s3::Client::from_conf(s3.retry_config(retry.clone()).timeout_config(long).build()),
            bus: aws_sdk_eventbridge::Client::from_conf(
                bus.retry_config(retry.clone()).timeout_config(timeout.clone()).build(),
            ),
            // A token is good for one answer, so the sender needs the result of each try.
            sfn: aws_sdk_sfn::Client::from_conf(
                sfn.retry_config(RetryConfig::disabled()).timeout_config(timeout.clone()).build(),
            ),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.retry_config(retry).timeout_config(timeout).build()),
            #[cfg(feature = "deploy")]
            sdk: std::sync::Arc::new(config.clone()),
        }
    }
}
