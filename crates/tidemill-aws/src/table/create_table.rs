//! The events table as it is documented: PK and SK, seven indexes with all attributes, and `ttl`.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus, TimeToLiveSpecification,
};
use tidemill_engine::backend::Fault;
use tidemill_model::events::key::Index;

use crate::connection::Connection;
use crate::fault::unavailable;

/// Makes the table and the bucket, and waits until they can be used. For tests and first tries; stages have templates.
pub async fn create_table(connection: &Connection, table: &str, bucket: &str) -> Result<(), Fault> {
    let mut create =
        connection.dynamo.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for index in Index::ALL {
        let [pk, sk] = index.attributes();
        for name in [pk, sk] {
            create = create.attribute_definitions(
                AttributeDefinition::builder()
                    .attribute_name(name)
                    .attribute_type(ScalarAttributeType::S)
                    .build()
                    .map_err(|error| unavailable("CreateTable", error))?,
            );
        }
        let keys = [key(pk, KeyType::Hash)?, key(sk, KeyType::Range)?];
        create = match index.name() {
            None => create.set_key_schema(Some(keys.to_vec())),
            Some(name) => create.global_secondary_indexes(
                GlobalSecondaryIndex::builder()
                    .index_name(name)
                    .set_key_schema(Some(keys.to_vec()))
                    .projection(Projection::builder().projection_type(ProjectionType::All).build())
                    .build()
                    .map_err(|error| unavailable("CreateTable", error))?,
            ),
        };
    }
    create.send().await.map_err(|error| unavailable("CreateTable", error))?;
    loop {
        let found = connection.dynamo.describe_table().table_name(table).send().await;
        let found = found.map_err(|error| unavailable("DescribeTable", error))?;
        if found.table.and_then(|table| table.table_status) == Some(TableStatus::Active) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let ttl = TimeToLiveSpecification::builder().attribute_name("ttl").enabled(true).build();
    let ttl = ttl.map_err(|error| unavailable("UpdateTimeToLive", error))?;
    let update = connection.dynamo.update_time_to_live().table_name(table).time_to_live_specification(ttl);
    update.send().await.map_err(|error| unavailable("UpdateTimeToLive", error))?;
    let create = connection.s3.create_bucket().bucket(bucket);
    create.send().await.map(drop).map_err(|error| unavailable("CreateBucket", error))
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, Fault> {
    let key = KeySchemaElement::builder().attribute_name(name).key_type(kind);
    key.build().map_err(|error| unavailable("CreateTable", error))
}
