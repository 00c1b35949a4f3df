//! A shell script in the place of the Claude CLI, for what no model server can be made to cause and for machines without
//! the CLI. It speaks the same lines.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::sandbox::Sandbox;

/// Plays one word of `plan` per call; the last one is played on. Each call leaves its arguments, its environment and what
/// it read in files of its number.
const SCRIPT: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo "9.9.9 (fake)"; exit 0; fi
dir=$CLAUDE_FAKE_DIR
n=1; while ! mkdir "$dir/call-$n" 2>/dev/null; do n=$((n + 1)); done
call="$dir/call-$n"
for argument in "$@"; do printf '%s\n' "$argument"; done > "$call/args"
tr '\0' '\n' < /proc/$$/environ > "$call/env"
pwd > "$call/cwd"
session=none; before=
for argument in "$@"; do
  case $before in --session-id) session=$argument;; esac
  case $argument in --resume=*) session=${argument#*=};; esac
  before=$argument
done
IFS= read -r prompt; printf '%s\n' "$prompt" > "$call/prompt"
word=$(sed -n "${n}p" "$dir/plan"); [ -n "$word" ] || word=$(tail -n 1 "$dir/plan")

init() {
  printf '{"type":"system","subtype":"init","session_id":"%s","model":"fake","tools":["Bash"],"cwd":"%s","claude_code_version":"9.9.9"}\n' "$session" "$PWD"
}
usage='{"input_tokens":120,"output_tokens":30,"cache_read_input_tokens":80,"cache_creation_input_tokens":10}'
# $1: text, $2: structured output
success() {
  printf '{"type":"assistant","message":{"id":"m1","model":"fake","content":[{"type":"text","text":"%s"}],"usage":{"input_tokens":1,"output_tokens":1}},"session_id":"%s"}\n' "$1" "$session"
  printf '{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"duration_ms":50,"duration_api_ms":40,"num_turns":2,"result":"%s","stop_reason":"end_turn","total_cost_usd":0.0125,"usage":%s,"modelUsage":{},"permission_denials":[],"structured_output":%s,"session_id":"%s"}\n' "$1" "$usage" "$2" "$session"
}
api_error() {
  printf '{"type":"result","subtype":"success","is_error":true,"api_error_status":%s,"duration_ms":5,"num_turns":1,"result":"API Error: %s","total_cost_usd":0.001,"usage":{"input_tokens":10,"output_tokens":0},"session_id":"%s"}\n' "$1" "$1" "$session"
  exit 1
}

case $word in
ok) init; success done '{"answer":"fake"}';;
names) init; success done '{"answer":"STRIPE_KEY is set"}';;
unseen) init; success done '{"answer":"DEPLOY is AKIANEVERTOBESEEN0123"}';;
wrong) init; success done '{"answer":7}';;
[45][0-9][0-9]) init; api_error "$word";;
nothing) exit 0;;
hold)
  init
  # As the Bash tool of the CLI does: a group and a session of its own, and nobody's child in the end.
  setsid sh -c 'echo $$ > "$0/tool"; trap "" TERM; while :; do sleep 1; done' "$call" &
  echo $$ > "$call/pid"
  while [ ! -e "$dir/go" ]; do sleep 0.1; done
  success done '{"answer":"held"}'; kill -9 "$(cat "$call/tool")" 2>/dev/null; exit 0;;
leak)
  init
  all="$ANTHROPIC_API_KEY $CLAUDE_CODE_OAUTH_TOKEN $DEPLOY_KEY"
  echo "stderr $all" >&2
  printf 'file %s\n' "$all" > leaked.txt
  printf 'file %s\n' "$all" > ../artifacts/leaked.txt
  printf '{"type":"assistant","message":{"id":"m0","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"echo %s"}}]},"session_id":"%s"}\n' "$all" "$session"
  printf '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"%s","is_error":false}]}}\n' "$all"
  echo "no json: $all"
  case $n in
  1) success "said $all" "{\"answer\":\"$all\"}";;
  *) printf '{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"bad key %s","usage":{},"session_id":"%s"}\n' "$all" "$session"; exit 1;;
  esac;;
esac
"#;

/// The schema of what it answers.
pub(crate) const SCHEMA: &str =
    "{type: object, required: [answer], properties: {answer: {type: string}}, additionalProperties: false}";

pub(crate) struct FakeClaude {
    program: PathBuf,
    dir: PathBuf,
}

impl FakeClaude {
    /// Puts the script into a sandbox, with what it is to do, one word per call.
    pub(crate) fn new(sandbox: &Sandbox, plan: &[&str]) -> Self {
        let (dir, program) = (sandbox.dir.join("fake"), sandbox.dir.join("claude"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("plan"), plan.join("\n") + "\n").unwrap();
        std::fs::write(&program, SCRIPT).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, dir }
    }

    /// The environment by which Tidemill finds it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("CLAUDE_BIN", self.program.to_str().unwrap()),
            ("CLAUDE_FAKE_DIR", self.dir.to_str().unwrap()),
            ("ANTHROPIC_API_KEY", "sk-ant-fake-0123456789"),
        ]
    }

    pub(crate) fn calls(&self) -> usize {
        let entries = std::fs::read_dir(&self.dir).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("call-")).count()
    }

    /// What a call left in one of its files, counted from 1.
    pub(crate) fn read(&self, call: usize, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(format!("call-{call}")).join(name)).unwrap_or_default()
    }

    /// The value of a flag of a call, in the same argument or the next.
    pub(crate) fn flag(&self, call: usize, name: &str) -> Option<String> {
        let arguments = self.read(call, "args");
        let mut arguments = arguments.lines();
        let found = arguments.find_map(|argument| {
            argument.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        found.strip_prefix('=').or_else(|| arguments.next()).map(str::to_owned)
    }

    /// Lets those go that hold.
    pub(crate) fn release(&self) {
        std::fs::write(self.dir.join("go"), "").unwrap();
    }

    /// The processes of a call that holds: the CLI and its tool, once both have begun.
    pub(crate) fn processes(&self, call: usize) -> [u32; 2] {
        let pid = |name: &str| self.read(call, name).trim().parse::<u32>().ok();
        crate::sandbox::eventually("the start of the agent", || {
            pid("pid").is_some() && pid("tool").is_some()
        });
        ["pid", "tool"].map(|name| pid(name).unwrap())
    }
}
