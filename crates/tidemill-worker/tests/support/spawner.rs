//! The spawner as a program of its own, for tests.

fn main() -> std::io::Result<()> {
    tidemill_worker::spawner::serve()
}
