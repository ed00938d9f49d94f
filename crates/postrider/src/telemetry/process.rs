//! What the operating system says about this process, under the names that Prometheus' own clients use.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// Memory and file descriptors at the moment of a scrape; absent where the system does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let measured = [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                resident_bytes(),
            ),
            ("process_open_fds", "Open file descriptors", open_descriptors()),
            (
                "process_max_fds",
                "Limit of open file descriptors",
                Some(descriptor_limit()),
            ),
        ];
        for (name, help, value) in measured {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// Resident memory in bytes.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Open file descriptors.
#[must_use]
pub fn open_descriptors() -> Option<u64> {
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(count).ok()
}

/// How many file descriptors this process may have open; `u64::MAX` when there is no limit.
#[must_use]
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}
