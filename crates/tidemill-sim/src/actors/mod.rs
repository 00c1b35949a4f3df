//! Who acts in a world: each draws what it does from the seed, and reports what it was answered to the oracle.

pub(crate) mod checker;
pub(crate) mod courier;
pub(crate) mod operator;
pub(crate) mod producer;
pub(crate) mod scripter;
pub(crate) mod triager;
pub(crate) mod worker;
