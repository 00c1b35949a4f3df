//! `tidemill keys`: which users may use the API.

use std::process::ExitCode;

use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tidemill_api as api;

use super::moment::now;
use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// How many keys are searched for one of an admin.
const KEYS_MAX: usize = 10_000;

/// Make, list and revoke API keys
///
/// Without keys a server listens on this machine only, and its own user and root may do everything. The first key ends
/// that at once. It can be made while no server runs.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Keys {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a key; its token is shown this once
    Create {
        /// What its holder may do
        #[arg(long)]
        role: RoleName,
        /// Its tenant; several for a worker [default: the configured tenant]
        #[arg(long = "tenant", value_name = "TENANT")]
        tenants: Vec<String>,
        /// What it is for, in words
        #[arg(long)]
        label: Option<String>,
        /// Clients of AWS sign with it too (`serve --aws-gateway`)
        #[arg(long)]
        aws: bool,
    },
    /// List keys, without their secrets
    List {
        /// How many at most
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// Revoke a key, at once
    Revoke {
        // Ids that older versions made may begin with a hyphen.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// Submits jobs of stored definitions, publishes events
    Producer,
    /// Claims and finishes tasks
    Worker,
    /// Looks
    Reader,
    /// All of it, and definitions and keys
    Admin,
}

impl RoleName {
    fn role(self) -> api::Role {
        match self {
            Self::Producer => api::Role::Producer,
            Self::Worker => api::Role::Worker,
            Self::Reader => api::Role::Reader,
            Self::Admin => api::Role::Admin,
        }
    }
}

impl Keys {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        let reach = if matches!(self.what, What::Create { .. }) { Reach::Making } else { Reach::Existing };
        block_on(async {
            let client = reach.client(config).await?;
            match self.what {
                What::Create { role, tenants, label, aws } => {
                    let tenants = (!tenants.is_empty()).then_some(tenants);
                    let request = api::KeyRequest { role: role.role(), tenants, label, aws };
                    create(&client, &request, json, out).await
                }
                What::List { limit } => list(&client, limit, json, out).await,
                What::Revoke { id } => {
                    let others = admins(&client).await.map(|admins| admins.iter().any(|admin| *admin != id));
                    let call = Call::new(Method::DELETE, format!("/v1/keys/{}", encode(&id)));
                    let key: api::KeyView = client.json(call).await?;
                    if json {
                        out.json(&key)?;
                    } else {
                        out.note(format_args!("revoked {}", key.id));
                        if key.role == api::Role::Admin && others == Some(false) {
                            warn_of_no_admin(out);
                        }
                    }
                    Ok(ExitCode::SUCCESS)
                }
            }
        })
    }
}

async fn create(client: &Client, request: &api::KeyRequest, json: bool, out: &mut Output) -> Ended {
    // From the first key on, only an admin may ask.
    let is_first =
        request.role != api::Role::Admin && admins(client).await.is_some_and(|admins| admins.is_empty());
    let created: api::KeyCreated = client.json(Call::post("/v1/keys", request)).await?;
    if json {
        out.json(&created)?;
    } else {
        out.data(&created.token)?;
        out.note(format_args!(
            "key {} for role {} of {}; the token above is shown this once",
            created.key.id,
            word(created.key.role),
            created.key.tenants.join(", ")
        ));
        if let Some(aws) = &created.aws {
            out.data(format_args!("AWS_ACCESS_KEY_ID={}", aws.access_key_id))?;
            out.data(format_args!("AWS_SECRET_ACCESS_KEY={}", aws.secret_access_key))?;
        }
        if is_first {
            warn_of_no_admin(out);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The keys of admins that are in force; `None` if that is unknown.
async fn admins(client: &Client) -> Option<Vec<String>> {
    let keys: Vec<api::KeyView> = client.list("/v1/keys", &Query::new(), KEYS_MAX).await.ok()?;
    let admins = keys.into_iter().filter(|key| key.role == api::Role::Admin && key.revoked_at.is_none());
    Some(admins.map(|key| key.id).collect())
}

fn warn_of_no_admin(out: &mut Output) {
    out.warn(
        "no admin has a key: from now on nobody may make or revoke keys through a server; stop the server and make one with \
         `tidemill keys create --role admin --data DIR`",
    );
}

async fn list(client: &Client, limit: usize, json: bool, out: &mut Output) -> Ended {
    let keys: Vec<api::KeyView> = client.list("/v1/keys", &Query::new(), limit).await?;
    if json {
        out.json(&json!({ "items": keys }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["ID", "ROLE", "TENANTS", "CREATED", "REVOKED", "LABEL"]);
    let now = now();
    for key in keys {
        let revoked = key.revoked_at.map_or_else(|| "-".to_owned(), |at| ago(at, now));
        let tenants = key.tenants.join(",");
        table.row(vec![
            key.id,
            word(key.role),
            tenants,
            ago(key.created_at, now),
            revoked,
            key.label.unwrap_or_default(),
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

fn word(role: api::Role) -> String {
    serde_json::to_value(role).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
