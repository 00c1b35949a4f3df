//! Times of many small pieces of work.

use std::cell::RefCell;
use std::time::Instant;

/// Microseconds each.
#[derive(Default)]
pub struct Samples(RefCell<Vec<f64>>);

impl Samples {
    pub fn add(&mut self, began: Instant) {
        self.0.get_mut().push(began.elapsed().as_secs_f64() * 1e6);
    }

    /// The time that this part of all took at most; 1 is the longest.
    pub fn at(&self, part: f64) -> f64 {
        let mut all = self.0.borrow_mut();
        if all.is_empty() {
            return 0.0;
        }
        all.sort_by(f64::total_cmp);
        all[((all.len() - 1) as f64 * part).round() as usize]
    }

    pub fn mean(&self) -> f64 {
        let all = self.0.borrow();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }
}
