//! Starting and ending a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{Ended, Folder, eventually, free_address, get};

/// The one line of a failure.
#[track_caller]
fn refused(ended: &Ended, code: i32, start: &str, end: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let line = ended.stderr.trim_end();
    assert!(!line.contains('\n'), "more than one line:\n{line}");
    assert!(
        line.starts_with(&format!("postrider: failed to {start}")),
        "{line}"
    );
    assert!(line.ends_with(end), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_nothing_more_to_say_gets_its_answer() {
    let folder = Folder::new();
    let server = folder.serve(&["dev", "--api-key", "k"]).await;
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = "PUT /api/v1/tenants/acme HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    // To its end: the connection is closed after the answer.
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_serves_with_a_key_that_outlives_a_restart_and_ends_on_sigterm() {
    let folder = Folder::new();
    let mut server = folder.serve(&["dev"]).await;
    let key = std::fs::read_to_string(folder.path().join(".postrider/dev-api-key")).unwrap();
    let said = eventually("it prints its key", async || {
        let said = server.said();
        said.contains(&format!("API key: {key}")).then_some(said)
    })
    .await;
    assert!(said.contains("postrider sink --port 4000"), "{said}");
    assert!(
        get(server.address, "/api/v1/tenants")
            .unwrap()
            .starts_with("HTTP/1.1 401 ")
    );
    assert!(
        get(server.address, "/metrics")
            .unwrap()
            .contains("\npostrider_deliveries_pending 0\n")
    );

    server.signal(Signal::TERM);
    assert_eq!(server.ended().await.code(), Some(0), "{}", server.said());
    assert!(server.said().contains("shut down"), "{}", server.said());

    let server = folder.serve(&["dev"]).await;
    eventually("it prints the same key", async || {
        server.said().contains(&key).then_some(())
    })
    .await;
    let mode = |name: &str| {
        std::fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(".postrider"), 0o700);
    assert_eq!(mode(".postrider/dev-api-key"), 0o600);
    assert_eq!(mode(".postrider/seal.key"), 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_exits_at_once() {
    let folder = Folder::new();
    let config = folder.file("p.toml", "[server]\ngrace = '1h'\nrequest_timeout = '1h'\n");
    let config = config.to_str().unwrap();
    let mut server = folder
        .serve(&["dev", "--config", config, "--api-key", "some-key"])
        .await;
    // A request whose body never comes keeps the shutdown waiting.
    let mut stuck = TcpStream::connect(server.address).unwrap();
    let head = "POST /api/v1/publish HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer some-key\r\n\
                Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n";
    stuck.write_all(head.as_bytes()).unwrap();
    let mut first = [0_u8; 12];
    std::io::Read::read_exact(&mut stuck, &mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 100", "the body is being waited for");
    server.signal(Signal::TERM);
    eventually("the shutdown begins", async || {
        server.said().contains("shutting down").then_some(())
    })
    .await;
    server.signal(Signal::INT);
    assert_eq!(server.ended().await.code(), Some(130));
}

#[test]
fn serve_refuses_to_start_without_a_key() {
    let folder = Folder::new();
    let ended = folder.run(&["serve"]);
    refused(
        &ended,
        2,
        "read the configuration: api_keys is not set, and a server without a key would be open",
        "by itself)",
    );
    let empty = folder.run_with(&["serve"], &[("POSTRIDER_API_KEYS", "")], "");
    assert_eq!(empty.code, Some(2), "an empty key never means open: {empty:?}");
    assert!(!folder.path().join("postrider-data").exists(), "nothing was made");
}

#[test]
fn a_port_in_use_is_one_line() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = folder.run(&[
        "serve",
        "--api-key",
        "some-key",
        "--log-level",
        "off",
        "--listen",
        &address,
    ]);
    let start = format!("listen on {address}: it is in use;");
    refused(&ended, 1, &start, "choose another address by --listen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_the_same_directory_is_one_line() {
    let folder = Folder::new();
    let first = folder.serve(&["dev"]).await;
    let other = free_address().to_string();
    let ended = folder.run(&["dev", "--listen", &other]);
    refused(
        &ended,
        1,
        "use the data directory ./.postrider: another postrider process has it open;",
        "--data-dir",
    );
    assert!(
        get(first.address, "/readyz")
            .unwrap()
            .starts_with("HTTP/1.1 200 "),
        "the first is not disturbed"
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_one_line() {
    let folder = Folder::new();
    folder.file("file", "");
    // The first is no directory; the second exists, and nobody can write there, not even root.
    for dir in ["file/data", "/proc/self"] {
        let ended = folder.run(&["serve", "--api-key", "some-key", "--data-dir", dir]);
        refused(&ended, 1, "", "make it writable, or name another by --data-dir");
        assert!(ended.stderr.contains(dir), "{ended:?}");
    }
}

#[test]
fn a_file_that_is_no_database_is_one_line_and_left_alone() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let path = folder.file(
        "data/postrider.db",
        &"this is a diary, not a database. ".repeat(100),
    );
    let before = std::fs::read(&path).unwrap();
    let ended = folder.run(&["serve", "--api-key", "some-key", "--data-dir", "data"]);
    refused(
        &ended,
        1,
        "open data/postrider.db: it is not a postrider database;",
        "--data-dir",
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let doctor = folder.run(&["doctor", "--api-key", "a-key-that-is-long", "--data-dir", "data"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("\nfail  database: "), "{doctor:?}");
}

#[test]
fn a_webhook_for_alerts_that_the_guard_refuses_is_one_line() {
    let folder = Folder::new();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let config = format!("[alerts]\nwebhook_url = 'http://10.1.2.3/in'\nwebhook_secret = '{secret}'\n");
    folder.file("p.toml", &config);
    let ended = folder.run(&[
        "serve",
        "--config",
        "p.toml",
        "--api-key",
        "some-key",
        "--data-dir",
        "data",
    ]);
    refused(
        &ended,
        2,
        "read the configuration: alerts.webhook_url (p.toml:2) is not allowed: the address 10.1.2.3 is not allowed: ",
        "or allow it by courier.allow_addresses (http:// needs courier.require_https = false)",
    );
    assert!(!ended.stderr.contains(secret), "{ended:?}");
    let doctor = folder.run(&["doctor", "--config", "p.toml", "--api-key", "some-key"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(
        doctor
            .stdout
            .starts_with("fail  configuration: alerts.webhook_url (p.toml:2) is not allowed: "),
        "{doctor:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_seal_key_is_refused_and_no_other_is_made() {
    let folder = Folder::new();
    let args = ["serve", "--api-key", "some-key", "--data-dir", "data"];
    let mut server = folder.serve(&args).await;
    server.signal(Signal::TERM);
    server.ended().await;
    let key = folder.path().join("data/seal.key");
    let aside = folder.path().join("aside");
    std::fs::rename(&key, &aside).unwrap();
    for _ in 0..2 {
        let ended = folder.run(&args);
        refused(
            &ended,
            1,
            "read the seal key data/seal.key: it is missing, ",
            "restore it from a backup, or set secret_key to the key that was used",
        );
        assert!(!key.exists(), "a wrong key would only confuse");
    }
    std::fs::write(&key, [0xff, 0xfe]).unwrap();
    let ended = folder.run(&args);
    let start = "read the seal key data/seal.key: it is not 32 bytes in base64; ";
    refused(&ended, 1, start, "without it no secret can be read");
    std::fs::rename(&aside, &key).unwrap();
    folder.serve(&args).await;
    let database = std::fs::metadata(folder.path().join("data/postrider.db")).unwrap();
    assert_eq!(database.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_says_whether_the_seal_key_is_that_of_the_database() {
    let folder = Folder::new();
    let mut server = folder
        .serve(&["serve", "--api-key", "some-key", "--data-dir", "data"])
        .await;
    server.signal(Signal::TERM);
    server.ended().await;
    let doctor = || {
        let args = ["--api-key", "a-key-that-is-long", "--listen", "127.0.0.1:0"];
        let ended = folder.run(&[&["doctor", "--data-dir", "data"], &args[..]].concat());
        let found = ended.stdout.lines().find(|line| line.contains(" database: "));
        (ended.code, found.unwrap().to_owned())
    };
    let (code, found) = doctor();
    assert_eq!(code, Some(0), "{found}");
    assert!(found.starts_with("ok    database: schema version "), "{found}");
    assert!(found.ends_with(", and the seal key opens its secrets"), "{found}");
    let key = folder.path().join("data/seal.key");
    std::fs::remove_file(&key).unwrap();
    let (code, found) = doctor();
    assert_eq!(code, Some(1), "{found}");
    assert!(
        found.contains("read the seal key data/seal.key: it is missing, "),
        "{found}"
    );
    assert!(!key.exists(), "it only looks");
    std::fs::write(&key, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    let (code, found) = doctor();
    assert_eq!(code, Some(1), "{found}");
    let text = "its secrets were sealed with another seal key; restore the key file of the data directory";
    assert!(found.contains(text), "{found}");
}
