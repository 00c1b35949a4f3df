mod cold_start;
mod deployed;
mod double;
mod site;
mod slack;
mod templates;
mod units;
mod wiring;
