//! Fields that are left out when they hold what is read in their place.

/// Whether a value is the one that is read where there is none, such as 0.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
