//! The commands that end by themselves.

use super::process::Folder;

#[test]
fn every_problem_of_a_configuration_is_told() {
    let folder = Folder::new();
    folder.file(
        "p.toml",
        "listne = '127.0.0.1:1'\n[server]\ngrace = '99h'\n[retry]\nmax_attempts = 0\n",
    );
    let ended = folder.run_with(
        &["config", "--config", "p.toml"],
        &[("POSTRIDER_LOG__FORMAT", "xml")],
        "",
    );
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(
        lines[0],
        "postrider: failed to read the configuration: 4 problems"
    );
    for line in [
        "  listne (p.toml:1) is not a known key; did you mean listen?",
        "  server.grace (p.toml:3) is 4d3h; must be from 0s to 1h",
        "  log.format (environment POSTRIDER_LOG__FORMAT) is \"xml\"; must be one of: auto, text, json",
    ] {
        assert!(lines.contains(&line), "{line}\nis not in\n{}", ended.stderr);
    }
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("  retry.max_attempts (p.toml:5) ")),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_configuration_is_shown_with_origins_and_without_secrets() {
    let folder = Folder::new();
    folder.file(
        "p.toml",
        "api_keys = ['canary-in-file']\n[retry]\nmax_attempts = 5\n",
    );
    let environment = [("POSTRIDER_SERVER__GRACE", "3s"), ("POSTRIDER_CONFIG", "p.toml")];
    let ended = folder.run_with(&["config", "--listen", "127.0.0.1:9"], &environment, "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown: Vec<String> = ended
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "KEY VALUE FROM",
        "listen 127.0.0.1:9 flag --listen",
        "data_dir ./postrider-data default",
        "api_keys *** p.toml:1",
        "server.grace 3s environment POSTRIDER_SERVER__GRACE",
        "retry.max_attempts 5 p.toml:3",
    ] {
        assert!(
            shown.iter().any(|shown| shown == line),
            "{line}\nis not in\n{}",
            ended.stdout
        );
    }
    let dev = folder.run(&["config", "--dev", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&dev.stdout).unwrap();
    assert_eq!(json["data_dir"]["origin"], "default of dev");
    assert!(!format!("{ended:?}").contains("canary"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["fly"]).code, Some(2));
    assert_eq!(folder.run(&["serve", "--colour", "red"]).code, Some(2));
    let publish = folder.run_with(&["publish", "--tenant", "acme"], &[], "{}");
    assert_eq!(publish.code, Some(2), "{publish:?}");
    assert!(
        publish
            .stderr
            .starts_with("postrider: failed to find an API key: give --api-key or set POSTRIDER_API_KEY")
    );
}

#[test]
fn completions_name_the_commands() {
    let script = Folder::new().run(&["completions", "bash"]).stdout;
    for command in ["serve", "dev", "sink", "publish", "events", "doctor", "config"] {
        assert!(script.contains(command), "{command}");
    }
}

#[test]
fn a_server_that_is_not_there_is_one_line() {
    let folder = Folder::new();
    let ended = folder.run(&["events", "list", "--url", "http://127.0.0.1:1", "--api-key", "k"]);
    assert_eq!(ended.code, Some(1));
    let start = "postrider: failed to list events: talk to the server at http://127.0.0.1:1 (is it running? see --url): ";
    assert!(ended.stderr.starts_with(start), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1);
}

#[test]
fn doctor_finds_what_is_wrong() {
    let folder = Folder::new();
    let well = folder.run(&[
        "doctor",
        "--api-key",
        "a-key-that-is-long",
        "--listen",
        "127.0.0.1:0",
    ]);
    for line in [
        "ok    configuration: ",
        "ok    API keys: 1",
        "ok    data directory: ",
        "ok    database: none yet",
        "ok    clock: ",
    ] {
        assert!(well.stdout.contains(line), "{line}\nis not in\n{}", well.stdout);
    }
    let ill = folder.run(&["doctor", "--listen", "127.0.0.1:0"]);
    assert_eq!(ill.code, Some(1), "{ill:?}");
    assert!(
        ill.stdout.contains("\nfail  API keys: api_keys is not set"),
        "{ill:?}"
    );
    assert_eq!(ill.stderr, "");
}

#[test]
fn a_file_of_certificates_that_is_not_there_fails_doctor_and_serve_by_its_key() {
    let folder = Folder::new();
    folder.file("p.toml", "[courier]\nca_file = '/nope.pem'\n");
    let run = |command: &str| {
        let args = [
            "--config",
            "p.toml",
            "--api-key",
            "a-key-that-is-long",
            "--listen",
            "127.0.0.1:0",
        ];
        folder.run(&[&[command], &args[..]].concat())
    };
    let text = "failed to use courier.ca_file: read certificates from /nope.pem: ";
    let doctor = run("doctor");
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(
        doctor.stdout.contains(&format!("\nfail  own TLS roots: {text}")),
        "{doctor:?}"
    );
    let serve = run("serve");
    assert_eq!(serve.code, Some(1), "{serve:?}");
    assert!(serve.stderr.contains(&format!("postrider: {text}")), "{serve:?}");
    folder.file("p.toml", "[courier]\nca_file = 'p.toml'\n");
    assert_eq!(run("doctor").code, Some(1), "no certificate in it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_is_listed() {
    let folder = Folder::new();
    let server = folder.serve(&["dev"]).await;
    let url = server.url();
    // The key of `dev` in this folder is found by itself.
    let args = [
        "publish",
        "--url",
        &url,
        "--tenant",
        "acme",
        "--topic",
        "order.paid",
        "--id",
        "order-1",
    ];
    let published = folder.run_with(&args, &[], r#"{"n":9007199254740993,"a":1,"a":2}"#);
    assert_eq!(
        published.stdout, "order-1 accepted, for 0 destinations\n",
        "{published:?}"
    );
    let again = folder.run_with(&args, &[("POSTRIDER_URL", "http://127.0.0.1:1")], "{}");
    assert_eq!(
        again.stdout, "order-1 was there already, for 0 destinations\n",
        "a flag wins: {again:?}"
    );
    let listed = folder.run(&["events", "list", "--url", &url]);
    assert!(listed.stdout.starts_with("ID "), "{listed:?}");
    assert!(
        listed.stdout.contains("order-1") && listed.stdout.contains("order.paid"),
        "{listed:?}"
    );
    let shown = folder.run(&["events", "show", "order-1", "--url", &url, "--json"]);
    assert!(shown.stdout.contains("order-1"), "{shown:?}");
    let missing = folder.run(&["events", "show", "nothing", "--url", &url]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("404 event not found"), "{missing:?}");
}

#[test]
fn simulate_says_which_option_is_wrong() {
    let folder = Folder::new();
    for (option, value, text) in [
        (
            "--fail-with",
            "200",
            "\"200\" is no failure: use a status code from 300 to 599, refused, timeout or dns",
        ),
        ("--without", "brakes", "brakes"),
    ] {
        let ended = folder.run(&["simulate", option, value]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let start = format!("error: invalid value '{value}' for '{option} ");
        assert!(ended.stderr.starts_with(&start), "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

#[test]
fn dead_letter_commands_say_what_to_write() {
    let folder = Folder::new();
    let server = ["--url", "http://127.0.0.1:1", "--api-key", "k"];
    let run = |args: &[&str]| folder.run(&[&["dead-letters"], args, &server].concat());
    let code = run(&["list", "--code", "abc"]);
    assert!(
        code.stderr.contains("a code is a number from 100 to 999"),
        "{code:?}"
    );
    for command in ["replay", "purge"] {
        let ended = run(&[command]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("--all to mean all of them"), "{ended:?}");
    }
    folder.file("letters.jsonl", "precious");
    let export = run(&["export", "letters.jsonl"]);
    assert!(export.stderr.contains("replace it with --force"), "{export:?}");
    let kept = std::fs::read_to_string(folder.path().join("letters.jsonl"));
    assert_eq!(kept.unwrap(), "precious");
}

#[test]
fn everything_of_a_destination_is_not_all_dead_letters() {
    let args = [
        "dead-letters",
        "replay",
        "--all",
        "--everything-since",
        "2026-01-31",
    ];
    let ended = Folder::new().run(&args);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let text = "'--all' cannot be used with '--everything-since <TIME>'";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
}
