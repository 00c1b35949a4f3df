//! Configuration: flags, environment, `.env`, files and defaults become one checked set of values.
//!
//! Everything that can be set stands in one table (`table`). Nothing below the binary reads the environment.

mod check;
mod env_file;
mod found_file;
mod origin;
mod resolve;
mod role;
mod setting;
mod table;
mod user;
mod values;
mod workflow;

pub(crate) use origin::Origin;
pub(crate) use resolve::{ConfigError, Resolved, Source, Sources};
pub(crate) use role::Role;
#[cfg(test)]
pub(crate) use setting::is_setting as is_setting_name;
pub(crate) use setting::{Kind, Setting, Use, names_secret};
pub(crate) use user::user_name;
#[cfg(feature = "aws")]
pub(crate) use values::AwsValues;
pub(crate) use values::{BackendName, Values};
