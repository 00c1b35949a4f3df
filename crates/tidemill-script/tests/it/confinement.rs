//! What a host has taken away from itself.

use crate::lab;

#[tokio::test]
async fn a_host_has_nothing_but_its_socket() {
    let pool = lab::pool(1);
    lab::run(&pool, &lab::request("a", "return 1")).await.unwrap();
    let pid = pool.status().idle[0];
    let field = |name| lab::status_field(pid, name).unwrap();
    if let Some(note) = pool.status().note {
        eprintln!("this machine cannot confine hosts fully: {note}");
    } else {
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()));
    }
    assert_eq!(field("Threads"), "1");

    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max file size"), "0");
    assert_eq!(limit("Max open files"), "0");
    assert_eq!(limit("Max processes"), "0");
    assert_eq!(limit("Max address space"), ((2 * 128 + 384) << 20).to_string());
    assert_eq!(limit("Max cpu time"), (600 + 2 * 3_600).to_string());

    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else {
        eprintln!("skipped in part: the environment and descriptors of a host can be read by root only");
        return pool.end().await;
    };
    assert_eq!(environment, b"TZ=UTC0\0");
    let mut descriptors: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    descriptors.sort();
    assert_eq!(descriptors.len(), 4, "{descriptors:?}");
    assert_eq!(descriptors[..2], ["/dev/null", "/dev/null"]);
    assert!(
        descriptors[2..].iter().all(|name| *name == descriptors[2] && name.starts_with("socket:")),
        "{descriptors:?}"
    );
    pool.end().await;
}
