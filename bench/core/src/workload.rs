//! The events that are written: about 760 bytes of JSON without keys, some tenants, apps and types.

use std::sync::Arc;

use tidemill_engine::command::{Command, Prepared, Publish, PublishedEvent};
use tidemill_model::{AppName, Context, Entity, EntityId, EntityType, EventType, Json, TenantId};

const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];
const APPS: [&str; 3] = ["shop", "billing", "warehouse"];
const TYPES: [&str; 6] =
    ["order.placed", "order.paid", "order.picked", "order.shipped", "order.returned", "order.noted"];
/// How many different properties there are. Enough that a compression dictionary cannot hold them.
const POOL: usize = 16_384;
/// How many events an entity gets.
pub const EVENTS_PER_ENTITY: u64 = 8;

/// Names and properties, made once and shared.
pub struct Workload {
    pub tenants: Vec<TenantId>,
    apps: Vec<AppName>,
    types: Vec<EventType>,
    kind: EntityType,
    context: Context,
    pool: Vec<Json>,
}

impl Workload {
    pub fn new() -> Arc<Self> {
        let mut random = Random(7);
        Arc::new(Self {
            tenants: TENANTS.iter().map(|name| TenantId::new(name).unwrap()).collect(),
            apps: APPS.iter().map(|name| AppName::new(name).unwrap()).collect(),
            types: TYPES.iter().map(|name| EventType::new(name).unwrap()).collect(),
            kind: EntityType::new("ORDER").unwrap(),
            context: Context { environment: "dev".into(), origin: "producer-api".into(), worker_id: None },
            pool: (0..POOL).map(|_| properties(&mut random)).collect(),
        })
    }

    pub fn tenant(&self, number: u64) -> &TenantId {
        &self.tenants[(number % TENANTS.len() as u64) as usize]
    }

    pub fn app(&self, number: u64) -> &AppName {
        &self.apps[(number % APPS.len() as u64) as usize]
    }

    /// An entity; `space` keeps those of different writers apart.
    pub fn entity(&self, space: u64, number: u64) -> Entity {
        let mixed = Random(space << 40 | number).next();
        Entity {
            kind: self.kind.clone(),
            id: EntityId::new(format!("order-{space:03}-{mixed:016x}")).unwrap(),
        }
    }

    /// One event, to be published.
    pub fn event(&self, entity: Entity, number: u64) -> PublishedEvent {
        PublishedEvent {
            entity,
            event_type: self.types[(number % TYPES.len() as u64) as usize].clone(),
            timestamp: None,
            properties: Prepared { id: None, properties: self.pool[number as usize % POOL].clone() },
            ttl: None,
            workflow: None,
        }
    }

    pub fn publish(&self, tenant: u64, app: u64, events: Vec<PublishedEvent>) -> Command {
        Command::Publish(Publish {
            tenant: self.tenant(tenant).clone(),
            app: self.app(app).clone(),
            context: self.context.clone(),
            events,
        })
    }
}

/// Properties as an order system might write them, with values that do not repeat.
fn properties(random: &mut Random) -> Json {
    let mut word = |length: usize| -> String {
        (0..length).map(|_| char::from(b'a' + (random.next() % 26) as u8)).collect()
    };
    let (first, last, street, city) = (word(6), word(9), word(11), word(8));
    let (sku_a, sku_b, note) = (word(8), word(8), word(91));
    let number = random.next();
    let text = format!(
        concat!(
            r#"{{"orderId":"{:016x}","customer":{{"first":"{}","last":"{}","email":"{}.{}@example.com","since":{}}},"#,
            r#""ship":{{"street":"{} {}","city":"{}","zip":"{:05}","country":"US"}},"currency":"USD","total":{}.{:02},"#,
            r#""lines":[{{"sku":"{}","quantity":{},"price":{}.{:02}}},{{"sku":"{}","quantity":{},"price":{}.{:02}}}],"#,
            r#""payment":{{"method":"card","last4":"{:04}","authorised":true}},"note":"{}"}}"#
        ),
        number,
        first,
        last,
        first,
        last,
        2000 + number % 25,
        number % 977,
        street,
        city,
        number % 99_999,
        number % 4_000,
        number % 100,
        sku_a,
        1 + number % 9,
        number % 300,
        number % 97,
        sku_b,
        1 + number % 7,
        number % 500,
        number % 89,
        number % 10_000,
        note,
    );
    Json::parse(text).unwrap()
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
