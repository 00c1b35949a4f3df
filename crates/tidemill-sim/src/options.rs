//! What the command line asks for.

use tidemill_engine::faults::Faults;

use crate::disk::Operation;
use crate::run::{BackendKind, RunPlan};

/// The arguments of `tidemill-sim`, checked.
#[derive(Debug, Clone)]
pub struct Options {
    pub seeds: u64,
    pub start: u64,
    pub threads: usize,
    /// Where seeds are listed that are to be run instead of a range.
    pub list: Option<String>,
    kinds: Vec<BackendKind>,
    steps: Option<u64>,
    trace_max: Option<usize>,
    faults: Faults,
    removed_syncs: Vec<(Operation, String)>,
    /// The arguments that a replay must repeat.
    kept: Vec<String>,
}

impl Options {
    /// What may be asked for.
    pub fn usage() -> String {
        let faults: Vec<_> = Faults::NAMES.iter().map(|name| name.replace('_', "-")).collect();
        format!(
            "\
usage: tidemill-sim [--seeds N] [--start S] [--backend memory|embedded|both] [--steps K] [--threads T]
                    [--trace LINES] [--list FILE] [--fault FAULT]
                    [--remove-sync PREFIX] [--remove-dir-sync PREFIX]

Runs N seeds from S on (default: 1000 from 1), on both backends unless told otherwise, and stops at the first one that
breaks a promise. With --list it runs the seeds that the file names instead, each on the backend it names. A fault, or a
sync that is left out for files or directories whose path starts with PREFIX, must make it fail.

Faults:
  {}",
            faults.join("\n  ")
        )
    }

    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seeds: 1_000,
            start: 1,
            threads: 2,
            list: None,
            kinds: vec![BackendKind::Memory, BackendKind::Embedded],
            steps: None,
            trace_max: None,
            faults: Faults::default(),
            removed_syncs: Vec::new(),
            kept: Vec::new(),
        };
        let mut args = args;
        while let Some(name) = args.next() {
            let Some(value) = args.next() else { return Err(format!("{name} needs a value")) };
            options.take(&name, &value)?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<u64>().map_err(|_| format!("{name} is {value}; it must be a number"));
        let count = || usize::try_from(number()?).map_err(|_| format!("{name} is too large"));
        let mut is_kept = true;
        match name {
            "--steps" => self.steps = Some(number()?),
            "--fault" => {
                if !self.faults.set(&value.replace('-', "_")) {
                    return Err(format!("there is no fault {value}"));
                }
            }
            "--remove-sync" => self.removed_syncs.push((Operation::Sync, value.to_owned())),
            "--remove-dir-sync" => self.removed_syncs.push((Operation::SyncDir, value.to_owned())),
            _ => is_kept = false,
        }
        if is_kept {
            self.kept.extend([name.to_owned(), value.to_owned()]);
            return Ok(());
        }
        match name {
            "--seeds" => self.seeds = number()?,
            "--start" => self.start = number()?,
            "--threads" => self.threads = count()?.max(1),
            "--list" => self.list = Some(value.to_owned()),
            "--trace" => self.trace_max = Some(count()?),
            "--backend" => {
                self.kinds = match (value, BackendKind::from_name(value)) {
                    ("both", _) => vec![BackendKind::Memory, BackendKind::Embedded],
                    (_, Some(kind)) => vec![kind],
                    _ => return Err(format!("there is no backend {value}")),
                }
            }
            _ => return Err(format!("there is no option {name}")),
        }
        Ok(())
    }

    /// What to run, one plan for each backend.
    pub fn plans(&self) -> Vec<RunPlan> {
        self.kinds.iter().map(|kind| self.plan(*kind)).collect()
    }

    /// What to run on a backend.
    pub fn plan(&self, kind: BackendKind) -> RunPlan {
        let usual = RunPlan::new(kind);
        RunPlan {
            steps: self.steps.unwrap_or(usual.steps),
            trace_max: self.trace_max.unwrap_or(usual.trace_max),
            faults: self.faults,
            removed_syncs: self.removed_syncs.clone(),
            ..usual
        }
    }

    /// How many seeds lie between two lines of progress.
    pub fn progress_every(&self) -> u64 {
        (self.seeds / 20).max(1)
    }

    /// The command that runs one seed again.
    pub fn replay(&self, seed: u64, kind: BackendKind) -> String {
        let mut command = format!(
            "cargo run -p tidemill-sim --release -- --backend {} --start {seed} --seeds 1",
            kind.as_str()
        );
        for argument in &self.kept {
            command.push(' ');
            command.push_str(argument);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_checked() {
        for (text, problem) in [
            ("--seeds", "--seeds needs a value"),
            ("--seeds x", "--seeds is x; it must be a number"),
            ("--backend tape", "there is no backend tape"),
            ("--fault gravity", "there is no fault gravity"),
            ("--speed 3", "there is no option --speed"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem);
        }
    }

    #[test]
    fn every_fault_is_listed_and_taken() {
        assert!(!Faults::NAMES.is_empty());
        for name in Faults::NAMES {
            let name = name.replace('_', "-");
            assert!(Options::usage().contains(&format!("\n  {name}")), "{name}");
            let options = parse(&format!("--fault {name}")).unwrap();
            assert_ne!(options.faults, Faults::default(), "{name}");
            assert!(options.replay(1, BackendKind::Memory).ends_with(&format!("--fault {name}")));
        }
    }

    #[test]
    fn a_replay_repeats_what_matters() {
        let options = parse("--seeds 9 --threads 1 --steps 50 --fault skip-counter --backend both").unwrap();
        assert_eq!(options.plans().len(), 2);
        assert_eq!(
            options.replay(7, BackendKind::Memory),
            "cargo run -p tidemill-sim --release -- --backend memory --start 7 --seeds 1 --steps 50 --fault skip-counter"
        );
    }
}
