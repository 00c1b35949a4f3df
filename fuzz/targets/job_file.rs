//! Job files: any bytes are a job or a list of problems, never a panic; what was read reads the same as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_source_file::Form;
use tidemill_source_file::job_file::read_job;

fuzz_target!(|bytes: &[u8]| {
    let Ok(job) = read_job("job.yaml", Form::Yaml, bytes) else { return };
    let json = job.document.to_value().to_string();
    let again = read_job("job.json", Form::Json, json.as_bytes());
    assert!(again.is_ok(), "{json} reads as YAML and not as JSON: {}", again.unwrap_err());
});
