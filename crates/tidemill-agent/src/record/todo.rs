//! How long the things on an agent's own list waited and took: pending, in progress, completed.
//!
//! Older versions of the CLI write the whole list each time (`TodoWrite`); newer ones make and change single entries
//! (`TaskCreate`, `TaskUpdate`).

use serde::Serialize;
use serde_json::Value;

use crate::cli::stream::ToolResult;
use crate::record::redact::Redactor;

/// The entries that are followed.
const TODOS_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TodoState {
    Pending,
    InProgress,
    Completed,
}

impl TodoState {
    fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "pending" => Some(Self::Pending),
            "in_progress" => Some(Self::InProgress),
            "completed" => Some(Self::Completed),
            _ => None,
        }
    }
}

/// One entry with its times, in epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Todo {
    content: String,
    status: TodoState,
    pending_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_progress_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<u64>,
    /// How long it waited, as far as it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_ms: Option<u64>,
    /// How long it took, as far as it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_progress_ms: Option<u64>,
    #[serde(skip)]
    key: String,
}

#[derive(Debug, Default)]
pub(crate) struct TodoList {
    todos: Vec<Todo>,
}

impl TodoList {
    /// Takes a call of a tool.
    pub(crate) fn called(&mut self, id: &str, tool: &str, input: &Value, now: u64, redactor: &Redactor) {
        match tool {
            "TodoWrite" => {
                for entry in input["todos"].as_array().into_iter().flatten() {
                    let content = entry["content"].as_str().unwrap_or_default();
                    let state = TodoState::read(&entry["status"]).unwrap_or(TodoState::Pending);
                    self.set(content, content, state, now, redactor);
                }
            }
            "TaskCreate" => {
                let content = input["subject"].as_str().unwrap_or_default();
                self.set(id, content, TodoState::Pending, now, redactor);
            }
            "TaskUpdate" => {
                let key = plain(&input["taskId"]);
                if let Some(state) = TodoState::read(&input["status"])
                    && let Some(todo) = self.todos.iter_mut().find(|todo| todo.key == key)
                {
                    todo.moved(state, now);
                }
            }
            _ => {}
        }
    }

    /// Takes the result of a call: only then the number of a new entry is known.
    pub(crate) fn answered(&mut self, result: &ToolResult) {
        let Some(todo) = self.todos.iter_mut().find(|todo| todo.key == result.id) else { return };
        let number = plain(&result.structured["task"]["id"]);
        if !number.is_empty() {
            todo.key = number;
            return;
        }
        let text = result.content.as_str().unwrap_or_default();
        let digits: String = text
            .split_once('#')
            .map_or("", |(_, rest)| rest)
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        if !digits.is_empty() {
            todo.key = digits;
        }
    }

    pub(crate) fn into_todos(self) -> Vec<Todo> {
        self.todos
    }

    fn set(&mut self, key: &str, content: &str, state: TodoState, now: u64, redactor: &Redactor) {
        if let Some(todo) = self.todos.iter_mut().find(|todo| todo.key == key) {
            return todo.moved(state, now);
        }
        if self.todos.len() == TODOS_MAX {
            return;
        }
        let mut todo = Todo {
            content: redactor.text(content),
            status: TodoState::Pending,
            pending_at: now,
            in_progress_at: None,
            completed_at: None,
            pending_ms: None,
            in_progress_ms: None,
            key: key.to_owned(),
        };
        todo.moved(state, now);
        self.todos.push(todo);
    }
}

impl Todo {
    fn moved(&mut self, state: TodoState, now: u64) {
        if state == self.status {
            return;
        }
        self.status = state;
        if state == TodoState::Pending {
            return;
        }
        let began = *self.in_progress_at.get_or_insert(now);
        self.pending_ms.get_or_insert(began.saturating_sub(self.pending_at));
        if state == TodoState::Completed {
            self.completed_at = Some(now);
            self.in_progress_ms = Some(now.saturating_sub(began));
        }
    }
}

/// A text, or a number as a text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        Redactor::of_environment(&[])
    }

    fn written(list: TodoList) -> Value {
        serde_json::to_value(list.into_todos()).unwrap()
    }

    #[test]
    fn a_whole_list_is_followed() {
        let mut list = TodoList::default();
        let states = |a: &str, b: &str| json!({ "todos": [{ "content": "A", "status": a }, { "content": "B", "status": b }] });
        for (now, a, b) in [
            (100, "pending", "pending"),
            (150, "in_progress", "pending"),
            (180, "in_progress", "pending"),
            (250, "completed", "in_progress"),
        ] {
            list.called("t", "TodoWrite", &states(a, b), now, &redactor());
        }
        assert_eq!(
            written(list),
            json!([
                { "content": "A", "status": "completed", "pendingAt": 100, "inProgressAt": 150, "completedAt": 250, "pendingMs": 50, "inProgressMs": 100 },
                { "content": "B", "status": "in_progress", "pendingAt": 100, "inProgressAt": 250, "pendingMs": 150 },
            ])
        );
    }

    #[test]
    fn single_entries_are_followed() {
        let mut list = TodoList::default();
        let result = |id: &str, content: &str, structured: Value| ToolResult {
            id: id.into(),
            is_error: false,
            content: json!(content),
            structured,
        };
        list.called("t1", "TaskCreate", &json!({ "subject": "A" }), 10, &redactor());
        list.answered(&result("t1", "", json!({ "task": { "id": "1" } })));
        list.called("t2", "TaskCreate", &json!({ "subject": "B" }), 20, &redactor());
        list.answered(&result("t2", "Task #2 created successfully: B", Value::Null));
        list.called("t3", "TaskUpdate", &json!({ "taskId": "1", "status": "in_progress" }), 30, &redactor());
        list.called("t4", "TaskUpdate", &json!({ "taskId": "2", "status": "completed" }), 40, &redactor());
        list.called("t5", "TaskUpdate", &json!({ "taskId": "9", "status": "completed" }), 50, &redactor());
        list.called("t6", "TaskUpdate", &json!({ "taskId": "1", "status": "completed" }), 60, &redactor());
        let todos = written(list);
        assert_eq!((&todos[0]["pendingMs"], &todos[0]["inProgressMs"]), (&json!(20), &json!(30)));
        assert_eq!((&todos[1]["status"], &todos[1]["inProgressMs"]), (&json!("completed"), &json!(0)));
    }

    #[test]
    fn strange_lists_are_passed_over() {
        let mut list = TodoList::default();
        for input in [json!(null), json!({ "todos": "x" }), json!({ "todos": [{ "status": 7 }] })] {
            list.called("t", "TodoWrite", &input, 1, &redactor());
        }
        assert_eq!(list.into_todos().len(), 1);
    }
}
