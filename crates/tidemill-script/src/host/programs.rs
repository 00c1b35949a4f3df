//! Compiled scripts, kept in the host that compiled them.

use std::collections::HashMap;
use std::rc::Rc;

use crate::engine::compiler::Program;
use crate::script_source::Version;

const PROGRAMS_MAX: usize = 256;
const PROGRAMS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The newest used programs, within limits.
#[derive(Default)]
pub(super) struct Programs {
    kept: HashMap<Version, (Rc<Program>, u64)>,
    bytes: usize,
    uses: u64,
}

impl Programs {
    pub(super) fn get(&mut self, version: Version) -> Option<Rc<Program>> {
        self.uses += 1;
        let (program, used) = self.kept.get_mut(&version)?;
        *used = self.uses;
        Some(Rc::clone(program))
    }

    pub(super) fn put(&mut self, version: Version, program: Program) -> Rc<Program> {
        self.uses += 1;
        let program = Rc::new(program);
        self.bytes += program.bytes();
        if let Some((old, _)) = self.kept.insert(version, (Rc::clone(&program), self.uses)) {
            self.bytes -= old.bytes();
        }
        while self.kept.len() > PROGRAMS_MAX || (self.bytes > PROGRAMS_BYTES_MAX && self.kept.len() > 1) {
            let oldest = self.kept.iter().min_by_key(|(_, (_, used))| *used).map(|(version, _)| *version);
            let Some((gone, _)) = oldest.and_then(|version| self.kept.remove(&version)) else { break };
            self.bytes -= gone.bytes();
        }
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::compiler::compile_script;
    use crate::script_source::ScriptSource;

    #[test]
    fn the_least_recently_used_program_goes_first() {
        let mut programs = Programs::default();
        let script = ScriptSource::new("s", "return 1").unwrap();
        let version = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
            Version(bytes)
        };
        for number in 0..PROGRAMS_MAX {
            programs.put(version(number), compile_script(&script).unwrap());
        }
        assert!(programs.get(version(0)).is_some());
        programs.put(version(PROGRAMS_MAX), compile_script(&script).unwrap());
        assert!(programs.get(version(0)).is_some(), "just used");
        assert!(programs.get(version(1)).is_none(), "the oldest");
        assert_eq!(programs.kept.len(), PROGRAMS_MAX);
        assert_eq!(programs.bytes, programs.kept.values().map(|(program, _)| program.bytes()).sum::<usize>());
    }
}
