//! Phases and steps: where in a workflow something happened.

/// The phases that are known. The list is open: others are accepted and flagged.
pub const PHASES: [&str; 9] =
    ["Preprocess", "Prepare", "Transform", "SVL", "MVL", "Hash", "Upload", "Submit", "AutoRepair"];

/// The steps that are known, each with its phase. The list is open: others are accepted and flagged.
pub const STEPS: [(&str, &str); 10] = [
    ("Prepare", "Prepare"),
    ("EvaluateTransform", "Transform"),
    ("Transform", "Transform"),
    ("SVL", "SVL"),
    ("MVL", "MVL"),
    ("EvaluateHash", "Hash"),
    ("Hash", "Hash"),
    ("EvaluateUpload", "Upload"),
    ("Upload", "Upload"),
    ("AutoRepair", "AutoRepair"),
];

/// A phase and a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseStep {
    pub phase: String,
    pub step: String,
}

impl PhaseStep {
    /// Whether the phase is none of [`PHASES`].
    pub fn unknown_phase(&self) -> bool {
        !PHASES.contains(&self.phase.as_str())
    }

    /// Whether the step is none of [`STEPS`].
    pub fn unknown_step(&self) -> bool {
        !STEPS.iter().any(|(step, _)| *step == self.step)
    }

    /// Whether either of them is not known.
    pub fn unknown(&self) -> bool {
        self.unknown_phase() || self.unknown_step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_places_are_known_and_others_are_flagged() {
        for (step, phase) in STEPS {
            let place = PhaseStep { phase: phase.to_owned(), step: step.to_owned() };
            assert!(!place.unknown(), "{place:?}");
        }
        for phase in PHASES {
            let place = PhaseStep { phase: phase.to_owned(), step: "Mint".to_owned() };
            assert!(!place.unknown_phase() && place.unknown_step() && place.unknown(), "{place:?}");
        }
        let place = PhaseStep { phase: "prepare".to_owned(), step: "Prepare".to_owned() };
        assert!(place.unknown_phase() && !place.unknown_step() && place.unknown());
    }
}
