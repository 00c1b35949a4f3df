//! Takes deliveries to their places over HTTP.

use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_engine::outbound::{DeliveryId, Parcel, SendError, Sender, Target};
use tidemill_model::{CallbackUrl, ErrorSanitizer, EventId, Json, TenantId};

use crate::address::{Guard, guard_of};
use crate::channel::{OutboundSettings, People};
use crate::post::{Post, Poster};
use crate::signature;

/// The header by which the other side can tell a repeated try.
const DELIVERY_HEADER: &str = "tidemill-delivery";
/// The longest text of an alert, in characters.
const ALERT_CHARS_MAX: usize = 3_000;

/// Where an alert is written that nobody else gets. It arrived once it is written.
pub type AlertLog = fn(TenantId, String) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Sends over HTTP.
pub struct HttpSender {
    settings: OutboundSettings,
    log: AlertLog,
    sanitizer: ErrorSanitizer,
    poster: Poster,
    clock: SystemClock,
}

impl HttpSender {
    pub fn new(settings: OutboundSettings, sanitizer: ErrorSanitizer, log: AlertLog) -> Self {
        Self { settings, log, sanitizer, poster: Poster::default(), clock: SystemClock::start() }
    }

    /// Sends a test to every target of alerts: where it went, and whether it arrived.
    pub async fn test(&self, stage: &str) -> Vec<(&'static str, Result<(), String>)> {
        let text =
            format!(":wave: *Tidemill test alert* ({stage})\nAlerts of this installation arrive here.");
        let body = json!({ "kind": "test", "environment": stage, "isRaised": true, "text": text });
        let people = match self.settings.people() {
            People::Webhook(_) => "SLACK_WEBHOOK_URL",
            People::Bot { .. } => "SLACK_BOT_TOKEN",
            People::Log => "the log",
        };
        let mut places = vec![(people, Target::People)];
        if self.settings.alert_webhook.is_some() {
            places.push(("ALERT_WEBHOOK_URL", Target::AlertWebhook));
        }
        let mut told = Vec::new();
        for (place, target) in places {
            let parcel = Parcel {
                id: DeliveryId(EventId::from_u128(u128::from(self.clock.now().millis()) << 80)),
                tenant: TenantId::trusted("default"),
                target,
                body: Json::of(&body),
                attempt: 1,
            };
            told.push((place, self.deliver(&parcel).await.map_err(|error| self.sanitizer.clean(&error))));
        }
        told
    }

    async fn deliver(&self, parcel: &Parcel) -> Result<(), String> {
        match &parcel.target {
            Target::Workflow => {
                let url = self.settings.workflow_webhook.as_deref();
                self.webhook("WORKFLOW_WEBHOOK_URL", url, parcel, parcel.body.as_str().to_owned()).await
            }
            Target::AlertWebhook => {
                let url = self.settings.alert_webhook.as_deref();
                self.webhook("ALERT_WEBHOOK_URL", url, parcel, self.clean_alert(parcel).to_string()).await
            }
            Target::Callback(url) => {
                let url = CallbackUrl::new(url).map_err(|bad| format!("the address {bad}"))?;
                let guard = guard_of(&self.settings.allowed_hosts, &url)?;
                let uri = url.as_str().parse().map_err(|_| "the address is not a URL".to_owned())?;
                self.signed(uri, guard, parcel, parcel.body.as_str().to_owned()).await
            }
            Target::People => self.alert_people(parcel).await,
            Target::Bus => Err("this store has no event bus".to_owned()),
            Target::TaskToken => Err("this store does not speak to Step Functions".to_owned()),
        }
    }

    /// Posts to an address that the operator set. The address itself may be a secret and is named by its setting.
    async fn webhook(
        &self,
        setting: &str,
        url: Option<&str>,
        parcel: &Parcel,
        body: String,
    ) -> Result<(), String> {
        let url = url.ok_or_else(|| format!("{setting} is not set"))?;
        let uri = url.parse().map_err(|_| format!("{setting} is not a URL"))?;
        let done = self.signed(uri, Guard::Anything, parcel, body).await;
        done.map_err(|error| format!("{setting}: {error}"))
    }

    async fn signed(
        &self,
        uri: axum::http::Uri,
        guard: Guard,
        parcel: &Parcel,
        body: String,
    ) -> Result<(), String> {
        let mut headers = vec![(DELIVERY_HEADER, parcel.id.to_string())];
        if let Some(key) = &self.settings.signing_key {
            let at = self.clock.now().millis() / 1_000;
            headers.push((signature::HEADER, signature::of(key, at, body.as_bytes())));
        }
        Ok(self.poster.post(Post { uri, guard, headers, body }).await.map(drop)?)
    }

    async fn alert_people(&self, parcel: &Parcel) -> Result<(), String> {
        let body = self.clean_alert(parcel);
        let text = body["text"].as_str().unwrap_or_default();
        let delivery = (DELIVERY_HEADER, parcel.id.to_string());
        match self.settings.people() {
            People::Webhook(url) => {
                let uri = url.parse().map_err(|_| "SLACK_WEBHOOK_URL is not a URL".to_owned())?;
                let body = json!({ "text": slack_text(text) }).to_string();
                let post = Post { uri, guard: Guard::Anything, headers: vec![delivery], body };
                let done = self.poster.post(post).await;
                done.map(drop).map_err(|error| format!("SLACK_WEBHOOK_URL: {error}"))
            }
            People::Bot { token, channel } => {
                let url = format!("{}/chat.postMessage", self.settings.slack_api.trim_end_matches('/'));
                let uri = url.parse().map_err(|_| "SLACK_API_URL is not a URL".to_owned())?;
                let body = json!({ "channel": channel, "text": slack_text(text) }).to_string();
                let headers = vec![delivery, ("authorization", format!("Bearer {token}"))];
                let post = Post { uri, guard: Guard::Anything, headers, body };
                let answer = self.poster.post(post).await.map_err(|error| format!("Slack: {error}"))?;
                // Slack says 200 whatever it did, and the answer says what.
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                if answer["ok"] == true {
                    return Ok(());
                }
                Err(format!("Slack refused it: {}", answer["error"].as_str().unwrap_or("without a reason")))
            }
            People::Log => (self.log)(parcel.tenant.clone(), text.to_owned()).await,
        }
    }

    /// An alert without what must not be seen.
    fn clean_alert(&self, parcel: &Parcel) -> Value {
        let mut body: Value = parcel.body.read().unwrap_or_default();
        if let Some(text) = body["text"].as_str() {
            body["text"] = json!(self.sanitizer.clean_within(text, ALERT_CHARS_MAX));
        }
        body
    }
}

/// A text that Slack shows as it is: what clients named must not call people or stand for links.
fn slack_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Sender for HttpSender {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        self.deliver(&parcel).await.map_err(SendError)
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_named_calls_nobody_in_slack() {
        for (text, expected) in [
            ("*Task:* TASK#req-1", "*Task:* TASK#req-1"),
            ("<!channel> <@U1>", "&lt;!channel&gt; &lt;@U1&gt;"),
            ("<http://evil|ok> & more", "&lt;http://evil|ok&gt; &amp; more"),
            ("&lt;!here&gt;", "&amp;lt;!here&amp;gt;"),
        ] {
            assert_eq!(slack_text(text), expected);
        }
    }

    #[test]
    fn alerts_hold_no_secret() {
        let sanitizer = ErrorSanitizer::new(vec!["hunter2-hunter2".to_owned()], None);
        let sender =
            HttpSender::new(OutboundSettings::default(), sanitizer, |_, _| Box::pin(async { Ok(()) }));
        let text = "it failed with hunter2-hunter2 and Bearer abcdefghijklmnop";
        for target in [Target::People, Target::AlertWebhook] {
            let parcel = Parcel {
                id: DeliveryId(EventId::from_u128(1)),
                tenant: TenantId::trusted("acme"),
                target,
                body: Json::of(&json!({ "kind": "x", "text": text })),
                attempt: 1,
            };
            let clean = sender.clean_alert(&parcel);
            assert_eq!(clean["kind"], "x");
            let told = clean["text"].as_str().unwrap_or_default();
            assert!(told.starts_with("it failed with [REDACTED]"), "{told}");
            assert!(!told.contains("hunter2") && !told.contains("abcdefghijklmnop"), "{told}");
        }
    }
}
