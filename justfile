# What CI runs: format, lints, documentation, tests.
check:
    .ci/run

# All tests, the crash test and the simulation.
test:
    scripts/test

# Runs seeds of the simulation; a failure prints the seed that replays it.
sim seeds="20000":
    cargo run --release --locked -p tidemill-sim -- --seeds {{seeds}}

# Measures the core beside the bare disk; prints a table and writes JSON.
bench *args:
    cargo run --release --locked --manifest-path bench/core/Cargo.toml -- {{args}}

# Formats all code.
fmt:
    cargo fmt --all

# Builds the documentation of all crates, warnings denied.
doc:
    RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked

# Renders docs/ as a site below target/site. Needs mdbook, and says how to get it.
site:
    @command -v mdbook >/dev/null || { echo "mdbook is missing: cargo install mdbook --locked" >&2; exit 1; }
    mdbook build
