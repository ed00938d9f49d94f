//! CPU time and memory of a process, from `/proc` (Linux only).

use anyhow::{Context, Result};

/// Ticks a second of the times in `/proc/PID/stat`: `USER_HZ`, 100 on every Linux architecture that we know.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds that the process has used, user and system, all threads.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    parse_cpu(&stat).with_context(|| format!("failed to understand {path}"))
}

/// Resident megabytes at the highest.
pub(super) fn peak_rss_mb(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    parse_peak(&status).with_context(|| format!("failed to understand {path}"))
}

/// `utime` and `stime` are fields 14 and 15; the name before them may hold spaces and parentheses (proc(5)).
fn parse_cpu(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn parse_peak(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 10 0";
        assert_eq!(parse_cpu(stat), Some(3.0));
    }

    #[test]
    fn the_peak_is_read() {
        assert_eq!(
            parse_peak("VmPeak:\t  9 kB\nVmHWM:\t   20480 kB\nVmRSS:\t 1 kB\n"),
            Some(20.0)
        );
    }
}
