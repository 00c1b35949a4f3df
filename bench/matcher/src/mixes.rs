//! Subscriptions and events, made so that about ten subscriptions want an event, however many there are.

use serde_json::{Value, json};

pub struct Mix {
    pub name: &'static str,
    /// The rules of one of the subscriptions.
    pub rules: fn(&mut Source, usize) -> Value,
    pub event: fn(&mut Source) -> Value,
}

/// Numbers from a seed, and how many subscriptions there are.
pub struct Source {
    state: u64,
    pub size: usize,
}

/// How many subscriptions want an event.
const WANTED: usize = 10;

impl Source {
    pub fn new(size: usize) -> Self {
        Self { state: 42, size }
    }

    pub fn below(&mut self, sides: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as usize % sides
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1_u64 << 40) as f64
    }

    /// One of the things that ten subscriptions ask for.
    fn thing(&mut self) -> usize {
        self.below(self.size / WANTED)
    }

    /// How many values each field needs, so that `WANTED` subscriptions match when this many fields are compared.
    fn spread(&self, fields: f64) -> usize {
        ((self.size / WANTED) as f64).powf(1.0 / fields).round() as usize
    }
}

fn word(thing: usize) -> String {
    format!("{:08x}", (thing as u32).wrapping_mul(0x9e37_79b1))
}

/// An order with some twenty fields, about 700 bytes.
fn order(source: &mut Source) -> Value {
    let thing = source.thing();
    let (county, amount) = (source.below(50), source.part());
    json!({
        "orderId": format!("ord-{thing:06}"), "storeId": format!("store-{thing:06}"), "status": "placed", "version": 3,
        "county": format!("county-{county}"), "amount": amount * 1e6, "currency": "EUR", "express": thing.is_multiple_of(2),
        "placedAt": format!("2025-{:02}-{:02}T{:02}:{:02}:00Z", thing % 12 + 1, thing % 28 + 1, thing % 24, thing % 60),
        "path": format!("/shops/{thing:06}/orders/{}", source.below(1_000_000)),
        "file": format!("invoice-{}.{thing:06}.pdf", source.below(1000)),
        "message": format!("order was placed by a customer and is waiting for {} to be picked up at the counter", word(thing)),
        "customer": {"id": source.below(100_000), "role": "guest", "name": "Ada Lovelace", "address": {"city": "London", "zip": "W1"}},
        "items": [{"sku": format!("sku-{thing:06}"), "count": 2, "price": 9.5}, {"sku": "sku-x", "count": 1, "price": 120}],
        "tags": ["new", format!("tag-{thing:06}"), "web"],
        "x": source.part(), "y": source.part(), "z": source.part(),
    })
}

fn by_id(source: &mut Source, at: usize) -> Value {
    json!({"status": "placed", "storeId": format!("store-{:06}", at % (source.size / WANTED))})
}

fn by_list(source: &mut Source, at: usize) -> Value {
    // Each thing is on fifty lists, and a fifth of those want this version.
    let things = source.size / WANTED;
    let list: Vec<String> = (0..5).map(|step| format!("ord-{:06}", (at * 5 + step) % things)).collect();
    json!({"orderId": {"in": list}, "currency": {"in": ["EUR", "USD"]}, "version": source.below(5)})
}

fn by_prefix(source: &mut Source, at: usize) -> Value {
    let thing = at % (source.size / WANTED);
    if at.is_multiple_of(2) {
        json!({"path": {"startsWith": format!("/shops/{thing:06}/")}})
    } else {
        json!({"file": {"endsWith": format!(".{thing:06}.pdf")}, "status": {"startsWith": "pla"}})
    }
}

fn by_part(source: &mut Source, at: usize) -> Value {
    let thing = at % (source.size / WANTED);
    match at % 3 {
        0 => json!({"tags": {"contains": format!("tag-{thing:06}")}}),
        1 => json!({"message": {"contains": format!("waiting for {} to be", word(thing))}}),
        _ => json!({"message": {"contains": word(thing)}}),
    }
}

fn by_range(source: &mut Source, _: usize) -> Value {
    let width = 1e6 * WANTED as f64 / source.size as f64;
    let low = source.part() * (1e6 + width) - width;
    json!({"amount": {"gte": low, "lt": low + width}})
}

/// The sooner a county's limit is passed the fewer ask.
fn by_county_and_limit(source: &mut Source, at: usize) -> Value {
    let share = (50 * WANTED) as f64 / source.size as f64;
    let limit = if source.part() < share * 2.0 { source.part() * 1e6 } else { 1e6 + source.part() };
    json!({"county": format!("county-{}", at % 50), "amount": {"gt": limit}})
}

fn by_either(source: &mut Source, at: usize) -> Value {
    let thing = source.thing();
    json!({"logic": "OR", "conditions": [
        {"field": "storeId", "op": "eq", "value": format!("store-{:06}", at % (source.size / WANTED))},
        {"field": "customer.role", "op": "eq", "value": format!("role-{thing}")},
        {"logic": "AND", "conditions": {"currency": "USD", "amount": {"gte": 10}, "path": {"startsWith": "/shops/"}}},
        {"logic": "AND", "conditions": [
            {"field": "status", "op": "ne", "value": "gone"},
            {"logic": "OR", "conditions": {"items.0.sku": format!("sku-y{thing}"), "message": {"contains": format!("none {thing}")}}},
        ]},
    ]})
}

/// Four of eight fields, a few values each: seventy sets of fields, and no value is rare.
fn by_four_of_eight(source: &mut Source, _: usize) -> Value {
    let values = source.spread(4.0);
    let mut fields: Vec<usize> = (0..8).collect();
    let mut rules = serde_json::Map::new();
    for _ in 0..4 {
        let field = fields.swap_remove(source.below(fields.len()));
        rules.insert(format!("dim.f{field}"), source.below(values).into());
    }
    rules.into()
}

fn with_eight(source: &mut Source) -> Value {
    let values = source.spread(4.0);
    let mut event = order(source);
    event["dim"] = (0..8).map(|field| (format!("f{field}"), Value::from(source.below(values)))).collect();
    event
}

/// Two intervals, each of which holds many points.
fn by_rectangle(source: &mut Source, _: usize) -> Value {
    let side = (WANTED as f64 / source.size as f64).sqrt();
    let (x, y) = (source.part() * (1.0 + side) - side, source.part() * (1.0 + side) - side);
    json!({"x": {"gte": x, "lt": x + side}, "y": {"gte": y, "lt": y + side}})
}

/// Three bounds, all open to one side.
fn by_three_limits(source: &mut Source, _: usize) -> Value {
    json!({"x": {"lt": source.part()}, "y": {"lt": source.part()}, "z": {"lt": source.part()}})
}

fn below_three_limits(source: &mut Source) -> Value {
    // So high that it passes all three limits of as many as are wanted.
    let high = 1.0 - (WANTED as f64 / source.size as f64).cbrt();
    let mut event = order(source);
    for axis in ["x", "y", "z"] {
        event[axis] = (high + (1.0 - high) * 0.2 * (source.part() - 0.5)).into();
    }
    event
}

/// Nothing to look up: everything else is asked for.
fn by_absence(source: &mut Source, at: usize) -> Value {
    let thing = at % (source.size / WANTED);
    json!({"status": {"ne": "gone"}, "deletedAt": {"exists": false}, "county": {"nin": ["county-99"]},
        "items.0.sku": format!("sku-{thing:06}")})
}

fn mixed(source: &mut Source, at: usize) -> Value {
    match at % 8 {
        0 => by_id(source, at / 8),
        1 => by_list(source, at / 8),
        2 => by_prefix(source, at / 8),
        3 => by_part(source, at / 8),
        4 => by_range(source, at),
        5 => by_county_and_limit(source, at),
        6 => by_either(source, at / 8),
        _ => by_absence(source, at / 8),
    }
}

pub const ALL: [Mix; 12] = [
    Mix { name: "id", rules: by_id, event: order },
    Mix { name: "list", rules: by_list, event: order },
    Mix { name: "prefix", rules: by_prefix, event: order },
    Mix { name: "contains", rules: by_part, event: order },
    Mix { name: "range", rules: by_range, event: order },
    Mix { name: "county-limit", rules: by_county_and_limit, event: order },
    Mix { name: "either", rules: by_either, event: order },
    Mix { name: "absence", rules: by_absence, event: order },
    Mix { name: "mixed", rules: mixed, event: order },
    Mix { name: "four-of-eight", rules: by_four_of_eight, event: with_eight },
    Mix { name: "rectangle", rules: by_rectangle, event: order },
    Mix { name: "three-limits", rules: by_three_limits, event: below_three_limits },
];
