//! Where deliveries go, by what the operator set.

use tidemill_engine::outbound::AllowedHosts;

/// The addresses and keys of deliveries.
#[derive(Debug, Clone, Default)]
pub struct OutboundSettings {
    pub workflow_webhook: Option<String>,
    pub alert_webhook: Option<String>,
    pub slack_webhook: Option<String>,
    pub slack_token: Option<String>,
    pub slack_api: String,
    pub alert_channel: Option<String>,
    /// What webhooks and callbacks are signed with; without it they are not.
    pub signing_key: Option<String>,
    pub allowed_hosts: AllowedHosts,
}

/// How alerts reach people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum People<'a> {
    Webhook(&'a str),
    Bot {
        token: &'a str,
        channel: &'a str,
    },
    /// Nobody was named: their alerts go to the log.
    Log,
}

impl OutboundSettings {
    pub(crate) fn people(&self) -> People<'_> {
        match (&self.slack_webhook, &self.slack_token, &self.alert_channel) {
            (Some(url), _, _) => People::Webhook(url),
            (None, Some(token), Some(channel)) => People::Bot { token, channel },
            _ => People::Log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_goes_before_a_bot_and_a_bot_needs_its_channel() {
        let set = |webhook: bool, token: bool, channel: bool| OutboundSettings {
            slack_webhook: webhook.then(|| "http://a".to_owned()),
            slack_token: token.then(|| "xoxb".to_owned()),
            alert_channel: channel.then(|| "#ops".to_owned()),
            ..OutboundSettings::default()
        };
        for (settings, expected) in [
            (set(true, true, true), People::Webhook("http://a")),
            (set(false, true, true), People::Bot { token: "xoxb", channel: "#ops" }),
            (set(false, true, false), People::Log),
            (set(false, false, true), People::Log),
        ] {
            assert_eq!(settings.people(), expected);
        }
    }
}
