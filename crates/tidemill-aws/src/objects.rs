//! Objects in S3: values too large for an item, and blobs.

use aws_sdk_s3::operation::get_object::GetObjectError;
use aws_sdk_s3::operation::head_object::HeadObjectError;
use aws_sdk_s3::primitives::ByteStream;
use tidemill_engine::backend::Fault;
use tidemill_model::TenantId;

use crate::connection::Connection;
use crate::fault::unavailable;

/// The metadata that names whose a blob is.
const TENANT: &str = "tenant";

#[derive(Debug, Clone)]
pub(crate) struct Objects {
    client: aws_sdk_s3::Client,
    bucket: String,
}

/// Some objects, and where the next ones begin.
pub(crate) struct Listed {
    /// Their keys, and when they were put, in epoch milliseconds.
    pub(crate) found: Vec<(String, u64)>,
    pub(crate) next: Option<String>,
}

impl Objects {
    pub(crate) fn new(connection: &Connection, bucket: &str) -> Self {
        Self { client: connection.s3.clone(), bucket: bucket.to_owned() }
    }

    pub(crate) async fn put(&self, key: &str, bytes: Vec<u8>) -> Result<(), Fault> {
        let put = self.client.put_object().bucket(&self.bucket).key(key).body(ByteStream::from(bytes));
        put.send().await.map(drop).map_err(|error| unavailable("PutObject", error))
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.read(key).await?.map(|(bytes, _)| bytes))
    }

    pub(crate) async fn remove(&self, key: &str) -> Result<(), Fault> {
        let remove = self.client.delete_object().bucket(&self.bucket).key(key);
        remove.send().await.map(drop).map_err(|error| unavailable("DeleteObject", error))
    }

    /// A page of the objects whose keys begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str, after: Option<String>) -> Result<Listed, Fault> {
        let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let list = list.set_continuation_token(after);
        let page = list.send().await.map_err(|error| unavailable("ListObjectsV2", error))?;
        let found = page.contents.unwrap_or_default().into_iter().filter_map(|object| {
            let modified = object.last_modified?.to_millis().ok()?;
            Some((object.key?, u64::try_from(modified).ok()?))
        });
        Ok(Listed { found: found.collect(), next: page.next_continuation_token })
    }

    pub(crate) async fn put_blob(&self, tenant: &TenantId, key: &str, bytes: Vec<u8>) -> Result<(), Fault> {
        let put = self.client.put_object().bucket(&self.bucket).key(place(tenant, key));
        let put = put.metadata(TENANT, header_text(tenant)).body(ByteStream::from(bytes));
        put.send().await.map(drop).map_err(|error| unavailable("PutObject", error))
    }

    pub(crate) async fn blob(&self, tenant: &TenantId, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        let found = self.read(&place(tenant, key)).await?;
        let own = found.filter(|(_, owner)| owner.as_deref() == Some(header_text(tenant).as_str()));
        Ok(own.map(|(bytes, _)| bytes))
    }

    /// The bytes of a blob, without getting them.
    pub(crate) async fn blob_size(&self, tenant: &TenantId, key: &str) -> Result<Option<u64>, Fault> {
        let head = self.client.head_object().bucket(&self.bucket).key(place(tenant, key));
        let found = match head.send().await {
            Ok(found) => found,
            Err(error) if error.as_service_error().is_some_and(HeadObjectError::is_not_found) => {
                return Ok(None);
            }
            Err(error) => return Err(unavailable("HeadObject", error)),
        };
        let owner = found.metadata().and_then(|metadata| metadata.get(TENANT));
        let size = found.content_length().and_then(|size| u64::try_from(size).ok());
        Ok(size.filter(|_| owner == Some(&header_text(tenant))))
    }

    /// An object and whose it is.
    async fn read(&self, key: &str) -> Result<Option<(Vec<u8>, Option<String>)>, Fault> {
        let found = match self.client.get_object().bucket(&self.bucket).key(key).send().await {
            Ok(found) => found,
            Err(error) if error.as_service_error().is_some_and(GetObjectError::is_no_such_key) => {
                return Ok(None);
            }
            Err(error) => return Err(unavailable("GetObject", error)),
        };
        let owner = found.metadata().and_then(|metadata| metadata.get(TENANT)).cloned();
        let bytes = found.body.collect().await.map_err(|error| unavailable("GetObject", error))?;
        Ok(Some((bytes.to_vec(), owner)))
    }
}

/// Where a tenant's blob lies. Payloads of events lie where their events say, which holds the event's id and so belongs
/// to one tenant; all else lies below the tenant's name.
fn place(tenant: &TenantId, key: &str) -> String {
    if key.starts_with("events/") { key.to_owned() } else { format!("tenants/{tenant}/{key}") }
}

/// A tenant's name in a header, which takes ASCII only.
fn header_text(tenant: &TenantId) -> String {
    tenant.as_str().chars().flat_map(char::escape_default).collect()
}
