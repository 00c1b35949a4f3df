//! That the suite's list is whole. The cases run where the backends are.

mod suite_list;
