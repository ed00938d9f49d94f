//! Which layer a test belongs to, and the count of each, read from what the test runner prints.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};

/// The layers of tests, from the inside out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// Decisions: tables, timelines, properties.
    Core,
    /// Conformance of the stores, crash and reopen.
    Store,
    /// Units of the program: configuration, directory, telemetry, engine, command line.
    Program,
    /// The HTTP client against a scripted receiver.
    Courier,
    /// The HTTP interface in process.
    Api,
    /// The real engine on paused time.
    Simulation,
    /// The binary on real sockets.
    EndToEnd,
    /// Real requests verified by published libraries.
    Sdk,
    /// What is deployed beside the binary: alert rules, dashboard.
    Deploy,
    /// The developer tools themselves.
    Tooling,
}

impl Layer {
    const ALL: [Self; 10] = [
        Self::Core,
        Self::Store,
        Self::Program,
        Self::Courier,
        Self::Api,
        Self::Simulation,
        Self::EndToEnd,
        Self::Sdk,
        Self::Deploy,
        Self::Tooling,
    ];

    /// The layer of a test, by its package and its path.
    pub(crate) fn of(package: &str, test: &str) -> Self {
        match package {
            "postrider-core" => return Self::Core,
            "postrider-store" => return Self::Store,
            "xtask" => return Self::Tooling,
            _ => {}
        }
        let mut folders = test.split("::");
        match (folders.next(), folders.next()) {
            (Some("e2e"), Some("sdk")) => Self::Sdk,
            (Some("e2e"), _) => Self::EndToEnd,
            (Some("deploy"), _) => Self::Deploy,
            (Some("simulation"), _) => Self::Simulation,
            (Some("api"), _) => Self::Api,
            (Some("courier"), _) => Self::Courier,
            _ => Self::Program,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Core => "core",
            Self::Store => "store",
            Self::Program => "program units",
            Self::Courier => "courier",
            Self::Api => "api",
            Self::Simulation => "simulation",
            Self::EndToEnd => "end to end",
            Self::Sdk => "SDK verification",
            Self::Deploy => "deploy",
            Self::Tooling => "developer tools",
        })
    }
}

/// How many tests ran and passed in each layer.
#[derive(Debug, Default)]
pub(crate) struct Census {
    counts: BTreeMap<Layer, (usize, usize)>,
}

impl Census {
    /// Counts one test.
    pub(crate) fn add(&mut self, layer: Layer, passed: bool) {
        let (ran, good) = self.counts.entry(layer).or_default();
        *ran += 1;
        *good += usize::from(passed);
    }

    /// A layer without a single test was skipped, whatever the reason: an error.
    pub(crate) fn complete(&self) -> Result<()> {
        let missing: Vec<_> = Layer::ALL
            .iter()
            .filter(|layer| !self.counts.contains_key(layer))
            .map(Layer::to_string)
            .collect();
        if !missing.is_empty() {
            bail!("no test ran in: {}", missing.join(", "));
        }
        Ok(())
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<18} {:>6} {:>7}", "layer", "ran", "passed")?;
        for layer in Layer::ALL {
            let (ran, passed) = self.counts.get(&layer).copied().unwrap_or_default();
            writeln!(f, "{layer:<18} {ran:>6} {passed:>7}")?;
        }
        let (ran, passed) = self
            .counts
            .values()
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        write!(f, "{:<18} {ran:>6} {passed:>7}", "all")
    }
}

/// Reads a line of `cargo nextest run`: package, test and whether it passed.
///
/// `        PASS [   0.004s] ( 12/150) postrider::it e2e::tour::readme`
pub(crate) fn nextest_result(line: &str) -> Option<(&str, &str, bool)> {
    let (status, rest) = line.trim_start().split_once(" [")?;
    let passed = match status.trim() {
        "PASS" | "LEAK" => true,
        "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" => false,
        signal if signal.starts_with("SIG") => false,
        _ => return None,
    };
    let (_, mut rest) = rest.split_once("] ")?;
    if rest.starts_with('(') {
        rest = rest.split_once(") ")?.1;
    }
    let (binary, test) = rest.split_once(' ')?;
    let package = binary.split("::").next()?;
    Some((package, test, passed))
}

/// Reads a line of `cargo test`: test and whether it passed. Ignored tests did not run.
///
/// `test time::tests::leap_second ... ok`
pub(crate) fn libtest_result(line: &str) -> Option<(&str, bool)> {
    let (test, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match result {
        "ok" => Some((test, true)),
        "FAILED" => Some((test, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_counted_in_its_layer() {
        let table = [
            ("postrider-core", "time::tests::x", Layer::Core),
            ("postrider-store", "conformance::accept::x", Layer::Store),
            ("postrider", "api::publish::x", Layer::Api),
            ("postrider", "courier::http::tests::x", Layer::Courier),
            ("postrider", "simulation::storm", Layer::Simulation),
            ("postrider", "e2e::tour::x", Layer::EndToEnd),
            ("postrider", "e2e::sdk::python", Layer::Sdk),
            ("postrider", "deploy::rules", Layer::Deploy),
            ("postrider", "config::tests::x", Layer::Program),
            ("xtask", "layers::tests::x", Layer::Tooling),
        ];
        for (package, test, layer) in table {
            assert_eq!(Layer::of(package, test), layer, "{package} {test}");
        }
    }

    #[test]
    fn lines_of_both_runners_are_understood() {
        let pass = "        PASS [   0.004s] ( 12/150) postrider::it e2e::tour::readme";
        assert_eq!(
            nextest_result(pass),
            Some(("postrider", "e2e::tour::readme", true))
        );
        let old = "        FAIL [   0.004s] postrider-core time::tests::x";
        assert_eq!(
            nextest_result(old),
            Some(("postrider-core", "time::tests::x", false))
        );
        let killed = "     SIGABRT [   1.0s] (1/2) postrider-store::it a::b";
        assert_eq!(nextest_result(killed), Some(("postrider-store", "a::b", false)));
        for other in [
            "        SLOW [> 60.000s] (1/2) postrider::it e2e::crash::x",
            "     Summary [   0.1s] 75 tests run: 75 passed, 0 skipped",
            "    Finished `test` profile [unoptimized] target(s) in 0.1s",
        ] {
            assert_eq!(nextest_result(other), None, "{other}");
        }
        assert_eq!(libtest_result("test a::b ... ok"), Some(("a::b", true)));
        assert_eq!(
            libtest_result("test a::b - should panic ... FAILED"),
            Some(("a::b - should panic", false))
        );
        assert_eq!(libtest_result("test a::b ... ignored"), None);
        assert_eq!(libtest_result("test result: ok. 3 passed; 0 failed"), None);
    }

    #[test]
    fn an_empty_layer_is_an_error() {
        let mut census = Census::default();
        census.add(Layer::Core, true);
        let message = census.complete().map_err(|error| error.to_string());
        assert_eq!(
            message,
            Err(
                "no test ran in: store, program units, courier, api, simulation, end to end, \
                 SDK verification, deploy, developer tools"
                    .to_owned()
            )
        );
    }
}
