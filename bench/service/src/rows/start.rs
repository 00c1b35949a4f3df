//! Cold start: from exec to the first answer.

use serde_json::json;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::latency::median;
use crate::server::Server;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let starts = if setting.quick { 5 } else { 20 };
    let data = setting.dir.join("start");
    let (mut probes, mut jobs, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..starts {
        let _ = std::fs::remove_dir_all(&data);
        let server = Server::start(setting.binary, &data, 1);
        let millis = || server.started.elapsed().as_secs_f64() * 1e3;
        let mut connection = server.connect();
        connection.get("/healthz").expect("the server answers").good();
        probes.push(millis());
        let job = json!({ "tasks": [{ "taskId": "one", "run": ["/bin/true"] }] });
        connection.post("/v1/jobs", &job).expect("the server answers").good();
        jobs.push(millis());
        drop(server);
        // The same directory once more: a start after a clean end.
        let server = Server::start(setting.binary, &data, 1);
        server.connect().get("/healthz").expect("the server answers").good();
        again.push(server.started.elapsed().as_secs_f64() * 1e3);
    }
    let _ = std::fs::remove_dir_all(&data);
    report.push(
        Figure::new("start", "exec to the first accepted job, empty directory, median", median(&jobs), "ms")
            .goal(Goal::AtMost(50.0))
            .note(format!(
                "{starts} starts; first answer to /healthz after {:.1} ms, {:.1} ms in a directory that was used",
                median(&probes),
                median(&again)
            )),
    );
}
