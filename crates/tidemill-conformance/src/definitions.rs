//! Task definitions: versions, conditions, what rests on them, and the files that name them.

use serde_json::{Value, json};
use tidemill_model::authored::field_problem::code;
use tidemill_model::{
    AddTasksFile, Definition, DefinitionDraft, ErrorCategory, JobFile, KnownType, Pinned, RetryPolicy, Run,
    Runner, TaskFile, TaskName,
};

use super::lab::{is_not_found, value};
use super::queue::message_for;
use super::shape::{acme, app, graph, job_of, other, request, task_id};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{Define, EngineError, IdempotencyKey, NewMessage, Rights, SubmittedJob};
use tidemill_engine::reply::Refusal;

const ADMIN: Rights = Rights { inline: true };
const PRODUCER: Rights = Rights { inline: false };

fn name(text: &str) -> TaskName {
    TaskName::new(text).expect("a name")
}

fn draft(text: &str, command: &str) -> DefinitionDraft {
    DefinitionDraft::command(name(text), Run::Shell(command.to_owned()))
}

async fn define<W: TestWorld>(lab: &Lab<W>, text: &str, command: &str) -> Definition {
    let how = match lab.engine.definition(acme(), &name(text), None).await.expect("the backend works") {
        None => Define::Create,
        Some(_) => Define::Replace { if_match: None },
    };
    lab.engine.define(acme(), draft(text, command), how).await.expect("the definition is accepted")
}

fn job_file(tasks: &Value) -> JobFile {
    JobFile::read(json!({ "tasks": tasks })).expect("the file is sound")
}

async fn submit<W: TestWorld>(
    lab: &Lab<W>,
    file: JobFile,
    rights: Rights,
) -> Result<SubmittedJob, EngineError> {
    lab.engine.submit_job_file(acme(), app("orders"), file, rights, None).await
}

fn command_of(definition: Option<Definition>) -> Option<Run> {
    definition.and_then(|definition| definition.draft.command)
}

/// Created once, replaced with a new version, removed, and created again with the next version.
pub async fn definitions_have_versions<W: TestWorld>(lab: Lab<W>) {
    let first = define(&lab, "scrape", "one").await;
    assert_eq!((first.version, first.created_at), (1, lab.now()));
    lab.pass(5);
    let answer = lab.engine.define(acme(), draft("scrape", "x"), Define::Create).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::Exists { .. }))), "{answer:?}");
    let second = define(&lab, "scrape", "two").await;
    assert_eq!((second.version, second.created_at, second.updated_at), (2, first.created_at, lab.now()));
    for (if_match, expected) in [(1, None), (3, None), (2, Some(3))] {
        let how = Define::Replace { if_match: Some(if_match) };
        let answer = lab.engine.define(acme(), draft("scrape", "three"), how).await;
        match expected {
            Some(version) => assert_eq!(answer.expect("it is at 2").version, version),
            None => assert!(
                matches!(answer, Err(EngineError::Refused(Refusal::RecordConflict { actual: 2, .. }))),
                "{answer:?}"
            ),
        }
    }
    let read = |version| lab.engine.definition(acme(), &first.draft.name, version);
    for (version, expected) in
        [(None, Some("three")), (Some(1), Some("one")), (Some(2), Some("two")), (Some(4), None)]
    {
        let found = command_of(read(version).await.expect("the backend works"));
        assert_eq!(found, expected.map(|text| Run::Shell(text.to_owned())), "{version:?}");
    }
    let answer = lab.engine.undefine(acme(), &name("scrape"), Some(2)).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::RecordConflict { .. }))), "{answer:?}");
    lab.engine.undefine(acme(), &name("scrape"), Some(3)).await.expect("nothing rests on it");
    assert_eq!(read(None).await.expect("the backend works"), None);
    assert!(command_of(read(Some(3)).await.expect("the backend works")).is_some(), "versions stay");
    assert!(is_not_found(&lab.engine.undefine(acme(), &name("scrape"), None).await), "gone");
    let how = Define::Replace { if_match: None };
    assert!(is_not_found(&lab.engine.define(acme(), draft("scrape", "x"), how).await));
    assert_eq!(define(&lab, "scrape", "four").await.version, 4, "versions never start again");
}

/// If two callers write at once, each gets its own version.
pub async fn racing_writers_get_a_version_each<W: TestWorld>(lab: Lab<W>) {
    define(&lab, "scrape", "zero").await;
    let how = Define::Replace { if_match: None };
    let writes = (0..8).map(|number| lab.engine.define(acme(), draft("scrape", &format!("n{number}")), how));
    let answers = super::side_by_side(writes).await;
    let mut versions: Vec<_> = answers.into_iter().map(|answer| answer.expect("accepted").version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..=9).collect::<Vec<_>>());
}

/// By name, in pages, without versions, removed ones and those of other tenants.
pub async fn definitions_are_listed_by_name<W: TestWorld>(lab: Lab<W>) {
    for text in ["b", "a-1", "a", "B", "a_1", "zz", "a1"] {
        define(&lab, text, "x").await;
        define(&lab, text, "y").await;
    }
    lab.engine.define(other(), draft("theirs", "x"), Define::Create).await.expect("accepted");
    lab.engine.undefine(acme(), &name("a_1"), None).await.expect("nothing rests on it");
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map(|text| name(text));
        let page = lab.engine.definitions(acme(), after, 4).await.expect("the backend works");
        found.extend(page.iter().map(|definition| definition.name().to_string()));
        if page.len() < 4 {
            break;
        }
    }
    assert_eq!(found, ["B", "a", "a-1", "a1", "b", "zz"]);
    assert_eq!(lab.engine.definition(acme(), &name("theirs"), None).await.expect("the backend works"), None);
}

/// A definition that open tasks rest on cannot be removed; once they are done it can.
pub async fn a_definition_in_use_stays<W: TestWorld>(lab: Lab<W>) {
    define(&lab, "scrape", "one").await;
    // A task that merely has the same name does not rest on it.
    let mut unrelated = graph("x");
    unrelated[0].name = name("scrape");
    lab.engine.submit_job(job_of(unrelated)).await.expect("the job is accepted");
    let tasks =
        json!([{ "taskId": "a", "run": "true" }, { "taskId": "b", "name": "scrape", "dependsOn": ["a"] }]);
    submit(&lab, job_file(&tasks), ADMIN).await.expect("the job is accepted");
    let removal = || async { lab.engine.undefine(acme(), &name("scrape"), None).await };
    let in_use =
        |answer: &Result<(), EngineError>| matches!(answer, Err(EngineError::Refused(Refusal::InUse { .. })));
    assert!(in_use(&removal().await), "b waits");
    lab.run(&["a", "x"]).await;
    assert!(in_use(&removal().await), "b is pending");
    lab.run(&["b"]).await;
    let file = TaskFile::read(json!({ "requestId": "t-1", "name": "scrape" })).expect("the file is sound");
    lab.engine.submit_task_file(acme(), app("orders"), file, PRODUCER, None).await.expect("accepted");
    assert!(in_use(&removal().await), "t-1 is pending");
    let task = lab.claim_one().await;
    lab.fail(&task, ErrorCategory::Auth).await;
    removal().await.expect("nothing open rests on it");
}

/// A job runs by the versions of its submission, whatever becomes of the definitions.
pub async fn a_job_pins_the_versions_it_was_submitted_with<W: TestWorld>(lab: Lab<W>) {
    let mut first = draft("scrape", "one");
    first.env.insert("A".to_owned(), "from definition".to_owned());
    first.env.insert("B".to_owned(), "from definition".to_owned());
    first.open_env.push("B".to_owned());
    first.secrets.push("API_TOKEN".to_owned());
    first.labels.insert("team".to_owned(), "x".to_owned());
    first.timeout = Some(tidemill_model::Millis(60_000));
    first.max_attempts = Some(7);
    lab.engine.define(acme(), first, Define::Create).await.expect("accepted");
    let tasks = json!([
        { "taskId": "a", "name": "scrape" },
        { "taskId": "b", "name": "scrape", "timeout": "2m", "idleTimeout": "5s", "env": { "B": "from task" },
          "retry": { "firstDelay": "1s" } },
    ]);
    submit(&lab, job_file(&tasks), PRODUCER).await.expect("the job is accepted");
    define(&lab, "scrape", "two").await;
    let tasks = lab.claim(5).await;
    let [a, b] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!(a.spec.options.timeout_ms, Some(60_000));
    let policy = RetryPolicy { max_attempts: 7, ..RetryPolicy::default() };
    assert_eq!(a.spec.options.retry, Some(policy));
    assert_eq!(b.spec.options.timeout_ms, Some(120_000), "the task's own");
    assert_eq!(b.spec.options.retry, Some(RetryPolicy { first_delay: 1_000, ..policy }));
    let resolved = lab.engine.execution_of(b).await.expect("the version is there");
    assert_eq!(resolved.runner, Runner::Command);
    assert_eq!(resolved.command, Some(Run::Shell("one".to_owned())), "as it was when the job came");
    assert_eq!(resolved.definition, Some(Pinned { name: name("scrape"), version: 1 }));
    assert_eq!((resolved.env["A"].as_str(), resolved.env["B"].as_str()), ("from definition", "from task"));
    assert_eq!(
        (resolved.secrets.as_slice(), resolved.idle_timeout_ms),
        (&["API_TOKEN".to_owned()][..], Some(5_000))
    );
    let Some(lab) = lab.reopen().await else { return };
    let late = lab.engine.execution_of(a).await.expect("the version is there");
    assert_eq!(late.command, Some(Run::Shell("one".to_owned())));
}

/// How a task is carried out that brought its own command, said nothing, or names what is not there.
pub async fn executions_are_resolved<W: TestWorld>(lab: Lab<W>) {
    let tasks = json!([{ "taskId": "a", "run": ["echo", "x"], "env": { "A": "1" }, "labels": { "l": "1" } }]);
    let job = submit(&lab, job_file(&tasks), ADMIN).await.expect("the job is accepted").job;
    let inline = lab.claim_one().await;
    assert_eq!(inline.spec.name.as_str(), "a", "its name is its id");
    let resolved = lab.engine.execution_of(&inline).await.expect("it is whole");
    assert_eq!(resolved.runner, Runner::Command);
    assert_eq!(resolved.command, Some(Run::Argv(vec!["echo".to_owned(), "x".to_owned()])));
    assert_eq!((resolved.env["A"].as_str(), resolved.labels["l"].as_str()), ("1", "1"));
    // The command is in the event, and a copy for the reader of the job.
    let created = &lab.job_history(job).await[0];
    let written = &value(&created.properties)["tasks"][0]["options"]["execution"];
    assert_eq!(written["run"], json!(["echo", "x"]));

    let tasks = json!([{ "taskId": "b", "agent": { "prompt": "do it", "maxTurns": 3 }, "timeout": "5m" }]);
    submit(&lab, job_file(&tasks), ADMIN).await.expect("the job is accepted");
    let inline = lab.claim_one().await;
    let resolved = lab.engine.execution_of(&inline).await.expect("it is whole");
    assert_eq!((resolved.runner, inline.spec.options.timeout_ms), (Runner::Agent, Some(300_000)));
    assert_eq!(resolved.agent.expect("the agent is there").steps[0].max_turns, Some(3));
    // The time of a stored agent's step is not that of its task.
    let stored = json!({ "name": "tag", "prompt": "tag it", "timeout": "5s", "taskTimeout": "10m" });
    let draft = DefinitionDraft::read(stored).expect("the definition is sound");
    lab.engine.define(acme(), draft, Define::Create).await.expect("it is stored");
    let tasks = json!([{ "taskId": "c", "name": "tag" }]);
    submit(&lab, job_file(&tasks), PRODUCER).await.expect("a producer may name it");
    let stored = lab.claim_one().await;
    let resolved = lab.engine.execution_of(&stored).await.expect("it is whole");
    assert_eq!((resolved.runner, stored.spec.options.timeout_ms), (Runner::Agent, Some(600_000)));
    assert_eq!(resolved.agent.expect("the agent is there").steps[0].timeout_millis(None), 5_000);

    let raw = |text: &str| NewMessage { name: name(text), ..message_for(acme(), &request(text)) };
    lab.engine.send(raw("unknown")).await.expect("the message is accepted");
    let native = lab.claim_one().await;
    assert_eq!(lab.engine.execution_of(&native).await.expect("it is native").runner, Runner::Native);
    define(&lab, "known", "by name").await;
    lab.engine.send(raw("known")).await.expect("the message is accepted");
    let named = lab.claim_one().await;
    let resolved = lab.engine.execution_of(&named).await.expect("there is a definition");
    assert_eq!(resolved.command, Some(Run::Shell("by name".to_owned())));

    let mut lost = graph("z");
    lost[0].options.execution = Some(super::shape::json(r#"{"definition":{"name":"gone","version":9}}"#));
    lab.engine.submit_job(job_of(lost)).await.expect("the job is accepted");
    let task = lab.claim_one().await;
    assert!(is_not_found(&lab.engine.execution_of(&task).await));
}

/// Unknown names are all told; a command needs the right, and so does a variable that the definition does not open.
pub async fn files_are_checked_before_anything_is_stored<W: TestWorld>(lab: Lab<W>) {
    define(&lab, "scrape", "one").await;
    let tasks = json!([
        { "taskId": "a", "name": "scrape" }, { "taskId": "b", "name": "x" }, { "taskId": "c", "name": "y" },
    ]);
    let Err(EngineError::Fields(problems)) = submit(&lab, job_file(&tasks), PRODUCER).await else {
        panic!("x and y are unknown")
    };
    let found: Vec<_> = problems.listed.iter().map(|problem| (problem.path.as_str(), problem.code)).collect();
    let unknown = code::UNKNOWN_TASK_DEFINITION;
    assert_eq!(found, [("tasks[1].name", unknown), ("tasks[2].name", unknown)]);

    let inline = json!([{ "taskId": "a", "name": "scrape" }, { "taskId": "b", "run": "true" }]);
    let agent = json!([{ "taskId": "a", "agent": "do it" }]);
    for (tasks, place) in [(inline, "tasks[1].run"), (agent, "tasks[0].agent")] {
        let answer = submit(&lab, job_file(&tasks), PRODUCER).await;
        assert!(
            matches!(&answer, Err(EngineError::InlineNotAllowed { field }) if field == place),
            "{answer:?}"
        );
        submit(&lab, job_file(&tasks), ADMIN).await.expect("an admin may");
    }
    let file = TaskFile::read(json!({ "run": "true" })).expect("the file is sound");
    let answer = lab.engine.submit_task_file(acme(), app("orders"), file.clone(), PRODUCER, None).await;
    assert!(matches!(answer, Err(EngineError::InlineNotAllowed { .. })), "{answer:?}");
    lab.engine.submit_task_file(acme(), app("orders"), file, ADMIN, None).await.expect("an admin may");
    assert_eq!(lab.count(KnownType::JobCreated).await, 2);

    let job = submit(&lab, job_file(&json!([{ "taskId": "a", "name": "scrape" }])), PRODUCER).await;
    let job = job.expect("the job is accepted").job;
    let more = |tasks| AddTasksFile::read(json!({ "tasks": tasks })).expect("the file is sound");
    let inline = more(json!([{ "taskId": "b", "run": "true" }]));
    let answer = lab.engine.add_tasks_file(acme(), job, inline.clone(), PRODUCER).await;
    assert!(matches!(answer, Err(EngineError::InlineNotAllowed { .. })), "{answer:?}");
    let unknown = more(json!([{ "taskId": "b", "name": "nowhere" }]));
    let answer = lab.engine.add_tasks_file(acme(), job, unknown, PRODUCER).await;
    assert!(matches!(answer, Err(EngineError::Fields(_))), "{answer:?}");
    let added = lab.engine.add_tasks_file(acme(), job, inline, ADMIN).await.expect("an admin may");
    assert_eq!((added.previous_total, added.dispatched), (1, vec![task_id("b")]));
    lab.check_job(job).await;
}

/// What a producer may set is what the definition opens, whatever it sets itself. A definition that opens nothing runs.
pub async fn producers_set_only_the_variables_that_a_definition_opens<W: TestWorld>(lab: Lab<W>) {
    let with = |name: &str, open: &[&str]| {
        let mut draft = draft(name, "tar -c .");
        draft.env.insert("REGION".to_owned(), "eu".to_owned());
        draft.env.insert("TAR_OPTIONS".to_owned(), "--sparse".to_owned());
        draft.open_env = open.iter().map(|name| (*name).to_owned()).collect();
        draft
    };
    lab.engine.define(acme(), with("old", &[]), Define::Create).await.expect("accepted");
    lab.engine.define(acme(), with("open", &["REGION"]), Define::Create).await.expect("accepted");
    let tasks = |definition: &str, variable: &str| json!([{ "taskId": "a", "name": definition }, { "taskId": "b", "name": definition, "env": { variable: "x" } }]);
    for (definition, opens_any, variable) in [
        ("old", false, "REGION"),
        ("old", false, "TAR_OPTIONS"),
        ("open", true, "TAR_OPTIONS"),
        ("open", true, "BASH_ENV"),
        ("open", true, "region"),
    ] {
        let tasks = tasks(definition, variable);
        let place = format!("tasks[1].env.{variable}");
        let answer = submit(&lab, job_file(&tasks), PRODUCER).await;
        let Err(refused @ EngineError::VariableNotOpen { .. }) = answer else { panic!("{answer:?}") };
        let told = refused.to_string();
        assert!(told.starts_with(&place) && told.contains(definition) && told.contains("openEnv"), "{told}");
        let EngineError::VariableNotOpen { field, opens_any: any, .. } = refused else { unreachable!() };
        assert_eq!((field, any), (place, opens_any));
        submit(&lab, job_file(&tasks), ADMIN).await.expect("an admin may");
        let alone = json!({ "name": definition, "env": { variable: "x" } });
        let file = TaskFile::read(alone).expect("the file is sound");
        let answer = lab.engine.submit_task_file(acme(), app("orders"), file, PRODUCER, None).await;
        let alone = format!("env.{variable}");
        assert!(
            matches!(&answer, Err(EngineError::VariableNotOpen { field, .. }) if *field == alone),
            "{answer:?}"
        );
    }
    assert_eq!(lab.count(KnownType::JobCreated).await, 5, "those of admins");
    let job = submit(&lab, job_file(&json!([{ "taskId": "a", "name": "old" }])), PRODUCER).await;
    let job = job.expect("it runs as it is").job;
    let more = |definition: &str| {
        let tasks = json!([{ "taskId": definition, "name": definition, "env": { "REGION": "us" } }]);
        AddTasksFile::read(json!({ "tasks": tasks })).expect("the file is sound")
    };
    let answer = lab.engine.add_tasks_file(acme(), job, more("old"), PRODUCER).await;
    assert!(matches!(answer, Err(EngineError::VariableNotOpen { .. })), "{answer:?}");
    lab.engine.add_tasks_file(acme(), job, more("open"), PRODUCER).await.expect("it is open");

    // What was accepted is answered alike when the definition has closed it meanwhile.
    let file = || {
        let tasks = json!([{ "taskId": "z", "name": "open", "env": { "REGION": "us" } }]);
        JobFile::read(json!({ "requestId": "req-1", "tasks": tasks })).expect("sound")
    };
    let first = submit(&lab, file(), PRODUCER).await.expect("it is open");
    let closed = Define::Replace { if_match: None };
    lab.engine.define(acme(), with("open", &[]), closed).await.expect("accepted");
    let again = submit(&lab, file(), PRODUCER).await.expect("it is known");
    assert_eq!((again.job, again.repeated), (first.job, true));
    let task = loop {
        let tasks = lab.claim(10).await;
        assert!(!tasks.is_empty(), "it is there");
        if let Some(task) = tasks.into_iter().find(|task| task.spec.task_id == task_id("z")) {
            break task;
        }
    };
    let resolved = lab.engine.execution_of(&task).await.expect("the version is there");
    assert_eq!((resolved.env["REGION"].as_str(), resolved.env["TAR_OPTIONS"].as_str()), ("us", "--sparse"));
}

/// The same file under the same id gives the same job and task, even if its definition changed or went meanwhile.
pub async fn a_repeated_file_is_answered_alike<W: TestWorld>(lab: Lab<W>) {
    define(&lab, "scrape", "one").await;
    let file = |n: u32| {
        let tasks = json!([{ "taskId": "a", "name": "scrape", "input": { "n": n } }]);
        let request = if n == 2 { "req-2" } else { "req-1" };
        JobFile::read(json!({ "name": "nightly", "requestId": request, "tasks": tasks })).expect("sound")
    };
    let task = TaskFile::read(json!({ "requestId": "t-1", "name": "scrape" })).expect("sound");
    let submit_task = || lab.engine.submit_task_file(acme(), app("orders"), task.clone(), PRODUCER, None);
    let first = submit(&lab, file(1), PRODUCER).await.expect("accepted");
    assert!(!submit_task().await.expect("accepted").repeated);
    let created = &lab.job_history(first.job).await[0];
    assert_eq!(super::shape::property(created, "name"), "nightly");
    define(&lab, "scrape", "two").await;
    let key = IdempotencyKey { route: "POST /v1/jobs".to_owned(), key: "k-1".to_owned(), body_hash: [1; 32] };
    let keyed = |file| lab.engine.submit_job_file(acme(), app("orders"), file, PRODUCER, Some(key.clone()));
    let by_key = keyed(file(2)).await.expect("another request, another job");
    assert_ne!(by_key.job, first.job);
    for state in ["changed", "gone"] {
        let again = submit(&lab, file(1), PRODUCER).await.expect("it is known");
        assert_eq!((again.job, again.repeated), (first.job, true), "{state}");
        let again = keyed(file(2)).await.expect("it is known");
        assert_eq!((again.job, again.repeated), (by_key.job, true), "{state}");
        assert!(submit_task().await.expect("it is known").repeated, "{state}");
        let answer = submit(&lab, file(3), PRODUCER).await;
        if state == "changed" {
            let conflict = matches!(answer, Err(EngineError::Refused(Refusal::IdempotencyConflict { .. })));
            assert!(conflict, "{answer:?}");
            lab.run(&["a", "a", "task"]).await;
            lab.engine.undefine(acme(), &name("scrape"), None).await.expect("nothing open rests on it");
        } else {
            assert!(matches!(answer, Err(EngineError::Fields(_))), "{answer:?}");
        }
    }
    assert_eq!(lab.count(KnownType::JobCreated).await, 2);
}

/// As many tasks as a job may have, each with all that its definition says.
pub async fn a_file_of_100_000_tasks_is_accepted<W: TestWorld>(lab: Lab<W>) {
    let mut all = draft("scrape-every-store-of-the-county", "one");
    all.timeout = Some(tidemill_model::Millis(60_000));
    all.max_attempts = Some(7);
    lab.engine.define(acme(), all, Define::Create).await.expect("accepted");
    let task = |number: usize| {
        let parents = if number == 0 { vec![] } else { vec![format!("task-{:06}", number - 1)] };
        let name = "scrape-every-store-of-the-county";
        json!({ "taskId": format!("task-{number:06}"), "name": name, "dependsOn": parents, "input": { "n": number } })
    };
    let tasks: Vec<_> = (0..tidemill_model::JOB_TASKS_MAX).map(task).collect();
    let submitted =
        submit(&lab, job_file(&Value::Array(tasks)), PRODUCER).await.expect("the job is accepted");
    assert_eq!((submitted.total_tasks, submitted.root_tasks.len()), (100_000, 1));
    assert_eq!(lab.claim_one().await.spec.options.timeout_ms, Some(60_000));
}

fn tasks_file(tasks: &Value) -> AddTasksFile {
    AddTasksFile::read(json!({ "tasks": tasks })).expect("the file is sound")
}

/// Secrets and directories come with work that a file brings along, and never with a definition that a producer names.
pub async fn work_that_is_brought_along_has_its_own_secrets_and_path<W: TestWorld>(lab: Lab<W>) {
    let stored = DefinitionDraft {
        secrets: vec!["THEIRS".to_owned()],
        path: vec!["/opt/theirs".to_owned()],
        ..draft("stored", "x")
    };
    lab.engine.define(acme(), stored, Define::Create).await.expect("accepted");
    let file = job_file(&json!([
        { "taskId": "a", "run": "true", "secrets": ["TOKEN"], "path": ["bin", "/opt/bin"] },
        { "taskId": "b", "name": "stored" },
        { "taskId": "c", "run": "true" },
    ]));
    submit(&lab, file, ADMIN).await.expect("the job is accepted");
    let lab = lab.reopen_if_it_can().await;
    let expected = [
        (vec!["TOKEN"], vec!["bin", "/opt/bin"]),
        (vec!["THEIRS"], vec!["/opt/theirs"]),
        (Vec::new(), Vec::new()),
    ];
    for (task, (secrets, path)) in lab.claim(4).await.iter().zip(expected) {
        let execution = lab.engine.execution_of(task).await.expect("the backend works");
        assert_eq!((execution.secrets, execution.path), {
            let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
            (owned(secrets), owned(path))
        });
    }
    for field in ["secrets", "path"] {
        let file = json!({ "tasks": [{ "taskId": "a", "name": "stored", field: ["X"] }] });
        let problems = JobFile::read(file).expect_err("a definition says its own");
        assert_eq!(problems.listed[0].path, format!("tasks[0].{field}"));
    }
}

/// A changed file is taken for tasks that did not complete, and the job goes on with it through a restart.
pub async fn a_changed_file_is_taken_for_what_did_not_complete<W: TestWorld>(lab: Lab<W>) {
    let tasks = json!([
        { "taskId": "a", "run": "one" },
        { "taskId": "b", "run": "broken", "dependsOn": ["a"], "input": { "n": 1 } },
        { "taskId": "c", "run": "three", "dependsOn": ["b"] },
    ]);
    let job = submit(&lab, job_file(&tasks), ADMIN).await.expect("the job is accepted").job;
    lab.run(&["a"]).await;
    let b = lab.claim_one().await;
    lab.fail(&b, ErrorCategory::Auth).await;
    let lab = lab.reopen_if_it_can().await;
    let changed = json!([
        { "taskId": "a", "run": "other" },
        { "taskId": "b", "run": "mended", "dependsOn": ["a"], "input": { "n": 2 }, "env": { "A": "1" } },
        { "taskId": "c", "run": "three", "dependsOn": ["b"], "timeout": "9s" },
        { "taskId": "d", "run": "four", "dependsOn": ["c"] },
    ]);
    let change = |tasks: &Value, rights| {
        let file = tasks_file(tasks);
        lab.engine.change_tasks_file(acme(), job, file, rights, "ann")
    };
    let refused = change(&changed, PRODUCER).await;
    assert!(matches!(refused, Err(EngineError::InlineNotAllowed { .. })), "{refused:?}");
    for (tasks, path) in [
        (json!([changed[0], changed[1]]), "tasks"),
        (json!([changed[0], changed[1], { "taskId": "c", "run": "three" }]), "tasks[2].dependsOn"),
        (json!([changed[0], changed[1], changed[2], changed[0]]), "tasks[3].taskId"),
    ] {
        let Err(EngineError::Fields(problems)) = change(&tasks, ADMIN).await else { panic!("{tasks}") };
        assert_eq!(problems.listed[0].path, path, "{problems:?}");
    }
    let file = tasks_file(&changed);
    let answer = lab.engine.change_tasks_file(other(), job, file, ADMIN, "eve").await;
    assert!(is_not_found(&answer), "{answer:?}");
    assert_eq!(lab.count(KnownType::JobTasksChanged).await, 0);
    let done = change(&changed, ADMIN).await.expect("it is taken");
    let ids = |names: &[&str]| names.iter().map(|name| task_id(name)).collect::<Vec<_>>();
    assert_eq!((done.changed, done.added, done.kept), (ids(&["b", "c"]), ids(&["d"]), ids(&["a"])));
    let again = change(&changed, ADMIN).await.expect("it is there");
    assert_eq!((again.changed, again.added, again.kept), (ids(&[]), ids(&[]), ids(&["a"])));
    assert_eq!(lab.count(KnownType::JobTasksChanged).await, 1);
    let lab = lab.reopen_if_it_can().await;
    lab.engine.resume_job(acme(), job, None).await.expect("b failed");
    let lab = lab.reopen_if_it_can().await;
    for (name, command, input) in [("b", "mended", r#"{"n":2}"#), ("c", "three", "{}"), ("d", "four", "{}")] {
        let task = lab.claim_one().await;
        assert_eq!((task.spec.task_id.as_str(), task.spec.input.as_str()), (name, input));
        assert_eq!(task.spec.options.timeout_ms, (name == "c").then_some(9_000));
        let execution = lab.engine.execution_of(&task).await.expect("the backend works");
        assert_eq!(execution.command, Some(Run::Shell(command.to_owned())));
        lab.complete(&task, "{}").await;
    }
    lab.check_job(job).await;
    let answer = lab.engine.change_tasks_file(acme(), job, tasks_file(&changed), ADMIN, "ann").await;
    assert!(answer.is_ok_and(|done| done.changed.is_empty()), "all of it is completed");
}

/// A resume takes the newest version of a definition if it is asked to, and the task's own settings stay.
pub async fn a_resume_takes_the_newest_definition<W: TestWorld>(lab: Lab<W>) {
    define(&lab, "scrape", "broken").await;
    let tasks = json!([
        { "taskId": "a", "name": "scrape", "timeout": "7s" },
        { "taskId": "b", "name": "scrape", "dependsOn": ["a"] },
    ]);
    let job = submit(&lab, job_file(&tasks), PRODUCER).await.expect("the job is accepted").job;
    let file = TaskFile::read(json!({ "requestId": "t-1", "name": "scrape" })).expect("the file is sound");
    lab.engine.submit_task_file(acme(), app("orders"), file, PRODUCER, None).await.expect("accepted");
    for task in lab.claim(3).await {
        lab.fail(&task, ErrorCategory::Auth).await;
    }
    let mended =
        DefinitionDraft { timeout: Some(tidemill_model::Millis(30_000)), ..draft("scrape", "mended") };
    lab.engine.define(acme(), mended, Define::Replace { if_match: None }).await.expect("accepted");
    // Without being asked it keeps what it was submitted with.
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    let task = lab.claim_one().await;
    let command = |execution: tidemill_model::ResolvedRunner| execution.command;
    let broken = Some(Run::Shell("broken".to_owned()));
    assert_eq!(command(lab.engine.execution_of(&task).await.expect("the backend works")), broken);
    lab.fail(&task, ErrorCategory::Auth).await;
    let resumed = lab.engine.resume_job_newest(acme(), job, None, PRODUCER, "ann").await.expect("a failed");
    assert_eq!(resumed.len(), 1);
    assert_eq!(lab.count(KnownType::JobTasksChanged).await, 1);
    lab.engine.resume_task_newest(acme(), request("t-1"), PRODUCER, "ann").await.expect("it failed");
    let lab = lab.reopen_if_it_can().await;
    let mended = Some(Run::Shell("mended".to_owned()));
    for _ in 0..2 {
        for task in lab.claim(3).await {
            let execution = lab.engine.execution_of(&task).await.expect("the backend works");
            assert_eq!(execution.definition.as_ref().map(|pinned| pinned.version), Some(2));
            assert_eq!(command(execution), mended);
            let own = if task.spec.task_id == task_id("a") { 7_000 } else { 30_000 };
            assert_eq!(task.spec.options.timeout_ms, Some(own), "{}", task.spec.task_id);
            lab.complete(&task, "{}").await;
        }
    }
    lab.check_job(job).await;
    let answer = lab.engine.resume_job_newest(acme(), job, None, PRODUCER, "ann").await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::JobCompleted(_)))), "{answer:?}");
    // What the newest version does not open, nobody sets but an admin.
    lab.pass(5);
    let open = DefinitionDraft { open_env: vec!["A".to_owned()], ..draft("open", "x") };
    lab.engine.define(acme(), open, Define::Create).await.expect("accepted");
    let file = job_file(&json!([{ "taskId": "a", "name": "open", "env": { "A": "1" } }]));
    let job = submit(&lab, file, PRODUCER).await.expect("it is open").job;
    let task = lab.claim_one().await;
    lab.fail(&task, ErrorCategory::Auth).await;
    define(&lab, "open", "closed").await;
    let answer = lab.engine.resume_job_newest(acme(), job, None, PRODUCER, "ann").await;
    assert!(matches!(answer, Err(EngineError::VariableNotOpen { .. })), "{answer:?}");
    lab.engine.resume_job_newest(acme(), job, None, ADMIN, "ann").await.expect("an admin may");
}
