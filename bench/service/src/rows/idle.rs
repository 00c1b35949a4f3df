//! A server that nobody asks for anything.

use std::time::Duration;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::server::Server;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let (settle, watched) = if setting.quick { (3, 10) } else { (10, 60) };
    let data = setting.dir.join("idle");
    let _ = std::fs::remove_dir_all(&data);
    let server = Server::start(setting.binary, &data, 3);
    std::thread::sleep(Duration::from_secs(settle));
    let before = server.usage();
    std::thread::sleep(Duration::from_secs(watched));
    let after = server.usage();
    drop(server);
    let _ = std::fs::remove_dir_all(&data);
    let mb = |bytes: u64| bytes as f64 / 1e6;
    report.push(
        Figure::new("idle", format!("resident memory after {settle} s"), mb(before.resident_bytes), "MB")
            .goal(Goal::AtMost(30.0))
            .note(format!(
                "all {} processes; proportional {:.1} MB",
                before.processes,
                mb(before.proportional_bytes)
            )),
    );
    let used = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    report.push(
        Figure::new("idle", format!("CPU over {watched} s"), used / watched as f64 * 100.0, "% of a core")
            .goal(Goal::AtMost(0.2))
            .note("in ticks of 10 ms"),
    );
    let written = after.written_bytes.saturating_sub(before.written_bytes);
    report.push(
        Figure::new("idle", format!("written to disk over {watched} s"), written as f64, "B")
            .goal(Goal::AtMost(0.0)),
    );
}
