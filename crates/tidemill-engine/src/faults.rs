//! Deliberate mistakes, for the tests that prove the simulation would notice them. Never compiled into a product.

/// Which rule is broken on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// A finish is taken from any worker, whatever its fence.
    pub skip_fence_check: bool,
    /// A finished task may finish again.
    pub allow_second_outcome: bool,
    /// A completion forgets to count down one of its children.
    pub skip_counter: bool,
}
