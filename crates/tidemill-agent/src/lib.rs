//! Carries a task out with the Claude Code CLI.
//!
//! A worker starts a child process for an agent's task; that process calls [`main_of_task`]. It reads what to do from a
//! file (`TIDEMILL_AGENT_FILE`, an `AgentSpec` as JSON) and its input from the argument, `INPUT_FILE` or
//! `inputs/input.json`. It fills in the prompts, drives `claude` step by step, judges what comes of it, and tells its parent
//! through lines on stdout, files in the output directory and its exit status. It knows nothing of engine or worker.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `artifacts/task-result.json` | the output of the last step, which is the task's |
//! | `artifacts/STEP.json`, or the step's `outputFile` | the output of each step |
//! | `traces/session_trace.json` | the steps with their tries: calls of tools, usage, cache, todos, errors |
//! | `logs/summary.log` | status, duration, turns, tokens and cost, for people |
//!
//! The rules it guards:
//!
//! - Success is exit status 0, a result that is no error, and an output that satisfies the schema (`verdict`).
//! - Every failure has a code and a class (`failure`), and only what passes by itself is tried again (`retry`).
//! - Nothing runs past the time of its step, of the task, or of silence (`query`); what runs below this process ends with it.
//! - Values in prompts cannot give orders, hide, or pull in files (`prompt_input`).
//! - No secret of this process is in a line, a record, a trace or an output (`redact`).
//!
//! | variable | meaning |
//! | --- | --- |
//! | `TIDEMILL_AGENT_FILE` | what the agent does |
//! | `TIDEMILL_OUTPUT_DIR` | where the output goes; `.output/REQUEST` otherwise |
//! | `TIDEMILL_INPUTS` | what the task's dependencies left |
//! | `TIDEMILL_AGENT_HOME` | a directory of the run: outputs of finished steps, and sessions to go on with |
//! | `TIDEMILL_AGENT_SESSION` | the session of an earlier attempt |
//! | `TIDEMILL_BUDGET` | the budget that the limit of costs is what is left of, in words |
//! | `TIDEMILL_DEADLINE_MS` | when the worker ends this process; work ends up to 5 s before |
//! | `TIDEMILL_TIMEOUT_MS` | the limit of the task, for messages |
//! | `CLAUDE_BIN`, `CLAUDE_CODE_PATH` | the program, when it is not the `claude` of `PATH` |
//! | `CLAUDE_MODEL` | for steps that name none (claude-opus-4-5) |
//! | `CLAUDE_SKIP_PERMISSIONS` | `true` lets the agent do everything |
//! | `CLAUDE_CONFIG_DIR` | the state of the CLI, such as a login; a private directory otherwise |
//! | `DEFAULT_TIMEOUT` | for steps without a time limit (120000) |
//! | `AGENT_MAX_ATTEMPTS` | tries within one attempt (3) |
//! | `AGENT_RETRY_DELAY` | before the second try (2s); doubles, with jitter, up to a minute |
//! | `CLAUDE_CODE_MAX_RETRIES` | requests that the CLI repeats by itself within one try (1) |
//! | `AGENT_IDLE_TIMEOUT` | how long the CLI may be silent while no tool runs (2m) |

mod cli;
mod clock;
pub mod failure;
mod places;
mod prompting;
mod record;
mod retry;
mod settings;
#[cfg(feature = "stub")]
pub mod stub_model;
mod task;
mod task_check;
mod verdict;

pub use cli::launch::{LAUNCHER, become_cli};
pub use prompting::schema::check_output;
pub use task::{TaskArguments, main_of_task};
