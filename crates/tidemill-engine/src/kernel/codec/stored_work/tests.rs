use std::sync::Arc;

use tidemill_model::{
    AppName, Fence, JobId, Json, MicroUsd, RequestId, SessionId, TaskId, TaskName, TenantId, Timestamp,
};

use crate::kernel::codec::control::Control;
use crate::kernel::codec::stored::{read_all, read_all_v1};
use crate::kernel::codec::stored_work::*;
use crate::kernel::commit::MessageId;

fn bytes_of<T: Stored>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

/// It comes back, any less of it is damage, and fields of a later release are passed over wherever they stand.
fn check<T: Stored + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = bytes_of(value);
    assert_eq!(read_all::<T>(&bytes).as_ref(), Ok(value));
    for end in 0..bytes.len() {
        assert!(read_all::<T>(&bytes[..end]).is_err(), "cut at {end} of {}: {value:?}", bytes.len());
    }
    let mut reader = Reader::new(&bytes);
    if T::FORM == CHOICE {
        reader.varint().unwrap();
    }
    let first = bytes.len() - reader.rest().len();
    for newer in newer_fields() {
        for place in [first, bytes.len() - 1] {
            let mut longer = bytes.clone();
            longer.splice(place..place, newer.iter().copied());
            assert_eq!(read_all::<T>(&longer).as_ref(), Ok(value), "{newer:?} at {place}");
        }
    }
}

/// Fields with a number that nobody knows, in every form.
fn newer_fields() -> Vec<Vec<u8>> {
    let key = |form: u8| {
        let mut out = Vec::new();
        put_varint(&mut out, 700 << 3 | u64::from(form));
        out
    };
    let inner = [vec![NUMBER, 0xff, 1], vec![BYTES, 2, b'h', b'i'], [vec![2], vec![9; 16]].concat()];
    let mut all: Vec<Vec<u8>> =
        inner.iter().map(|field| [key(field[0]), field[1..].to_vec()].concat()).collect();
    let structs: Vec<u8> =
        inner.iter().flat_map(|field| [vec![3 << 3 | field[0]], field[1..].to_vec()].concat()).collect();
    all.push([key(STRUCT), structs.clone(), vec![END]].concat());
    all.push([key(CHOICE), vec![7], structs.clone(), vec![END]].concat());
    all.push([key(4), vec![3, NUMBER, 1, 2, 3]].concat());
    all.push([key(4), vec![2, STRUCT], structs.clone(), vec![END], structs, vec![END]].concat());
    all.push([key(4), vec![0, BYTES]].concat());
    all
}

fn task_key() -> TaskKey {
    TaskKey { tenant: TenantId::trusted("acme"), request: RequestId::trusted("t-1") }
}

fn message() -> Message {
    Message {
        id: MessageId(7),
        task: task_key(),
        run: 1,
        not_before: Timestamp::MIN,
        wait_millis: 0,
        priority: -3,
        key: None,
    }
}

fn options() -> TaskOptions {
    TaskOptions {
        retry: Some(RetryPolicy { max_attempts: 3, first_delay: 0, max_delay: 9, on_timeout: true }),
        timeout_ms: Some(0),
        execution: Some(Json::empty_object()),
        agent: true,
        on_failure: OnFailure::Park,
        park_timeout_ms: Some(9),
        county: Some("Cook".to_owned()),
    }
}

fn spec() -> TaskSpec {
    TaskSpec {
        task_id: TaskId::trusted("a"),
        name: TaskName::trusted("noop"),
        depends_on: vec![TaskId::trusted("b"), TaskId::trusted("c")],
        input: Json::empty_object(),
        options: options(),
    }
}

fn stream() -> Stream {
    let mut stops = Trail::default();
    for seq in [3, 9, 700, 70_000] {
        stops.push(Seq(seq));
    }
    let last = Position { timestamp: Timestamp::MAX, id: tidemill_model::EventId::from_u128(5) };
    let late = Late { last, lag_millis: Some(0) };
    Stream {
        history: History { main: stops, aside: Trail::default() },
        last: Some(last),
        late: Some(Box::new(late)),
    }
}

fn job_head() -> JobHead {
    JobHead {
        tenant: TenantId::trusted("acme"),
        app: AppName::trusted("shop"),
        job: JobId::from_u128(7),
        request: RequestId::trusted("r"),
        name: Some("".into()),
        created_at: Timestamp::MIN,
        completed_at: None,
        cancelled: true,
        counts: JobCounts { waiting: 0, pending: 1, processing: 2, completed: 0, failed: 300, parked: 4 },
        stream: stream(),
        version: 300,
        allowance: Some(Box::new(Allowance {
            budget: Budget { usd: Some(MicroUsd(0)), tokens: None },
            spent: Spending { cost_micros: 400, tokens: 5 },
        })),
        hops: 3,
        callback: Some("http://a/b".into()),
    }
}

#[test]
fn what_is_written_comes_back_and_what_is_newer_is_passed_over() {
    check(&options());
    check(&TaskOptions::default());
    check(&spec());
    check(&message());
    let waiting = Message { wait_millis: 600_000, ..message() };
    check(&Queued {
        message: waiting,
        visible_at: Timestamp::MAX,
        deliveries: 300,
        receives: 0,
        wait_millis: 45_000,
    });
    check(&job_head());
    let lease = Lease {
        owner: Owner { worker: "w".into(), generation: Some(0) },
        until: Timestamp::MAX,
        claimed_at: Timestamp::MIN,
        heartbeats: 3,
    };
    let states =
        [TaskState::Queued, TaskState::Leased(lease), TaskState::Parked, TaskState::Done(Outcome::TimedOut)];
    for state in states {
        check(&state);
        let session = Some(SessionId::trusted("s"));
        let head = TaskHead { state, session, fence: Fence(9), ..TaskHead::dispatched() };
        let entry = KeptTask { head: Some(head), stream: stream(), message: Some(MessageId(0)) };
        check(&StoredTask { alone: None, entry: entry.clone(), index: Some(0) });
        check(&Row::Task(StoredTask { alone: None, entry, index: None }));
    }
    check(&Row::JobTasks(vec![Arc::new(spec())]));
    check(&Row::JobTasks(Vec::new()));
    check(&RowKey::JobTasks(TenantId::trusted("acme"), JobId::from_u128(0), 0));
    for kind in [
        TaskChangeKind::Dispatch,
        TaskChangeKind::Begin { fence: Fence(0) },
        TaskChangeKind::Finish { fence: Fence(4), outcome: Outcome::Failed, attempts: 0, error: None },
    ] {
        check(&TaskChange { task: task_key(), kind });
    }
    let idempotency = Idempotency { body_hash: [7; 32], effect: Effect::Job(JobId::from_u128(3)) };
    for value in [RecordValue::Idempotency(idempotency), RecordValue::Bytes([0u8; 0].as_slice().into())] {
        let record = Record { version: 0, expires_at: None, value };
        let key = RecordKey { kind: RecordKind::System, tenant: None, id: "".into() };
        check(&record);
        check(&RecordWrite::Put { key: key.clone(), record: Some(record) });
        check(&RecordWrite::Put { key, record: None });
    }
}

#[test]
fn what_is_not_known_and_matters_is_refused() {
    // A change of a kind that a later release has: the state would be wrong without it.
    let mut bytes = Vec::new();
    put_field(&mut bytes, 1, &task_key());
    bytes.extend([2 << 3 | CHOICE, 99, END, END]);
    assert_eq!(read_all::<TaskChange>(&bytes), Err(BadBytes("holds an unknown kind of TaskChangeKind")));
    assert_eq!(read_all::<TaskKey>(&[END]), Err(BadBytes("lacks TaskKey.tenant")));
    let wrong = [1 << 3 | NUMBER, 5, END];
    assert_eq!(read_all::<TaskKey>(&wrong), Err(BadBytes("holds a field of another form")));
    assert!(read_all::<TaskKey>(&[NUMBER | 1, END]).is_err(), "a field without a number");
    // As deep as it likes, but not for ever.
    let deep = [vec![7 << 3 | STRUCT; 5_000], vec![END; 5_001]].concat();
    assert_eq!(read_all::<TaskKey>(&deep), Err(BadBytes("lies too deep")));
}

#[test]
fn entries_of_version_1_are_read() {
    let none: [u8; 16] = [0; 16];
    // Version, tag of a message, its id, tenant, request, run, moment, priority, no key.
    let mut bytes = vec![1, 3];
    bytes.extend(7u128.to_le_bytes());
    bytes.extend(b"\x04acme\x03t-1\x01");
    put_varint(&mut bytes, Timestamp::MIN.millis());
    bytes.extend([5, 0]);
    assert_eq!(Control::decode(&bytes), Ok(Control::Enqueue(message())));
    // A row that is gone, carried.
    let gone = [vec![1, 7, 4], none.to_vec(), vec![0]].concat();
    assert_eq!(Control::decode(&gone), Ok(Control::Carry(RowKey::Message(MessageId(0)), None)));
    let mut again = Vec::new();
    Control::Carry(RowKey::Message(MessageId(0)), None).encode(&mut again);
    assert_eq!(Control::decode(&again), Control::decode(&gone));
    assert!(Control::decode(&[3, 3]).is_err(), "a later version");
}

#[test]
fn rows_of_version_1_end_where_they_ended() {
    let mut bytes = Vec::new();
    bytes.extend(7u128.to_le_bytes());
    bytes.extend(b"\x04acme\x03t-1\x01");
    put_varint(&mut bytes, Timestamp::MIN.millis());
    bytes.extend([5, 0]);
    put_varint(&mut bytes, Timestamp::MAX.millis());
    bytes.push(9);
    let queued =
        Queued { message: message(), visible_at: Timestamp::MAX, deliveries: 9, receives: 0, wait_millis: 0 };
    assert_eq!(read_all_v1::<Queued>(&bytes), Ok(queued.clone()));
    bytes.push(5);
    assert_eq!(read_all_v1::<Queued>(&bytes), Ok(Queued { receives: 5, ..queued }));
    for (what, agent) in [(0, false), (2, true)] {
        let plain = TaskOptions { timeout_ms: Some(7), agent, ..TaskOptions::default() };
        assert_eq!(read_all_v1::<TaskOptions>(&[0, 1, 7, what]), Ok(plain));
    }
    let park = read_all_v1::<TaskOptions>(b"\0\0\x04\x01\x01\x09\x01\x04Cook").unwrap();
    assert_eq!(
        (park.on_failure, park.park_timeout_ms, park.county.as_deref()),
        (OnFailure::Park, Some(9), Some("Cook"))
    );
    assert!(read_all_v1::<TaskOptions>(&[0, 0, 8]).is_err());
}
