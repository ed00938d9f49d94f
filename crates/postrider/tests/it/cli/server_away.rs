//! Commands whose server is busy, restarts, or has nothing to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::process::Folder;

/// A server that gives these answers, one to a connection, and tells the first line of each request. Where the status is 0, only
/// the text is written and the connection closed: without a text as a server that is being restarted.
pub(super) fn scripted(answers: &[(u16, &'static str)]) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = answers.to_vec();
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let request = whole(&mut stream);
            asked.push(request.lines().next().unwrap_or_default().to_owned());
            if status == 0 {
                // Whoever has seen enough closes before the end.
                let _ = stream.write_all(body.as_bytes());
            } else {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        }
        asked
    });
    (url, server)
}

/// A request to the end of its body: closing with something unread would break the connection before the answer is seen.
fn whole(stream: &mut impl Read) -> String {
    let (mut request, mut piece) = (String::new(), [0; 8_192]);
    loop {
        let length = stream.read(&mut piece).unwrap();
        request.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        let is_whole = request.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let announced = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            body.len() >= announced.map_or(0, |length| length.parse().unwrap())
        });
        if length == 0 || is_whole {
            return request;
        }
    }
}

const BUSY: (u16, &str) = (503, r#"{"status":503,"message":"the store is busy"}"#);
const GONE: (u16, &str) = (0, "");

pub(super) fn run(folder: &Folder, url: &str, args: &[&str]) -> super::process::Ended {
    folder.run(&[args, &["--url", url, "--api-key", "k"]].concat())
}

#[test]
fn an_import_is_repeated_while_the_server_is_busy_or_away() {
    let folder = Folder::new();
    folder.file("letters.jsonl", "{}\n{}\n");
    let done = r#"{"imported":1,"duplicates":1,"refused":0,"results":[]}"#;
    let (url, server) = scripted(&[BUSY, GONE, (200, done)]);
    let ended = run(&folder, &url, &["dead-letters", "import", "letters.jsonl"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout.trim(), "1 imported, 1 were there already, 0 refused");
    let asked = server.join().unwrap();
    assert_eq!(asked, ["POST /api/v1/dead-letters/import HTTP/1.1"; 3]);
}

#[test]
fn an_import_that_is_refused_is_not_repeated() {
    let folder = Folder::new();
    folder.file("letters.jsonl", "{}\n");
    let (url, server) = scripted(&[(401, r#"{"status":401,"message":"unauthorized"}"#)]);
    let ended = run(&folder, &url, &["dead-letters", "import", "letters.jsonl"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("401 unauthorized"), "{ended:?}");
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_replay_is_watched_through_a_restart() {
    let folder = Folder::new();
    let replay = |state: &str, done: u64| {
        format!(r#"{{"id":"rpl_1","state":"{state}","total":2,"done":{done},"succeeded":{done},"failed":0}}"#)
    };
    let (running, done) = (replay("running", 1).leak(), replay("done", 2).leak());
    let (url, server) = scripted(&[(200, running), BUSY, GONE, (200, done)]);
    let ended = run(&folder, &url, &["replays", "show", "rpl_1", "--follow"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.stdout.lines().last(),
        Some("rpl_1 done: 2 of 2 done, 2 succeeded, 0 failed again")
    );
    assert_eq!(
        server.join().unwrap(),
        ["GET /api/v1/replays/rpl%5F1 HTTP/1.1"; 4]
    );
}

#[test]
fn nothing_to_replay_is_said() {
    let folder = Folder::new();
    for (unreachable, text) in [
        (r#"{"id":"rpl_1","total":0,"unreachable":0}"#, "nothing to replay"),
        (
            r#"{"id":"rpl_1","total":0,"unreachable":3}"#,
            "nothing to replay: the destinations of all 3 are deleted",
        ),
    ] {
        let (url, server) = scripted(&[(201, unreachable)]);
        let ended = run(&folder, &url, &["dead-letters", "replay", "--all"]);
        assert_eq!((ended.code, ended.stdout.trim()), (Some(0), text), "{ended:?}");
        server.join().unwrap();
    }
}

#[test]
fn a_purge_goes_on_after_a_restart_with_what_it_meant_at_first() {
    let folder = Folder::new();
    let step = r#"{"purged":3,"remaining":2,"upto":"7"}"#;
    let last = r#"{"purged":2,"remaining":0,"upto":"7"}"#;
    let (url, server) = scripted(&[(200, step), BUSY, (200, last)]);
    let ended = run(&folder, &url, &["dead-letters", "purge", "--all", "--yes"]);
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (Some(0), "5 dead letters deleted"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("waiting for up to 60 s"), "{ended:?}");
    server.join().unwrap();
    let (url, server) = scripted(&[BUSY]);
    let ended = run(&folder, &url, &["dead-letters", "purge", "--all", "--yes"]);
    assert_eq!(ended.code, Some(1), "a second request could mean more: {ended:?}");
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_wrong_address_is_told_at_once() {
    let folder = Folder::new();
    folder.file("letters.jsonl", "{}\n");
    let (stranger, server) = scripted(&[(0, "this is no HTTP")]);
    for url in [
        "foo",
        "ftp://127.0.0.1:1",
        "http://",
        "http://no-such-host.invalid",
        &stranger,
    ] {
        let ended = run(&folder, url, &["dead-letters", "import", "letters.jsonl"]);
        assert_eq!(ended.code, Some(1), "{url}: {ended:?}");
        assert!(!ended.stderr.contains("waiting"), "{url}: {ended:?}");
    }
    server.join().unwrap();
}
