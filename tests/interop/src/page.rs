//! The page about a run: `page.md`, with the tables of the run.

use std::thread;
use std::time::Duration;

use testkit::server::Server;

use crate::Outcome;
use crate::build::NotRun;
use crate::pair::{Extent, Findings, PAUSE};
use crate::peers::{PEERS, Peer};
use crate::scenarios::{Count, Share};

#[derive(Debug)]
pub struct Page<'a> {
    servers: &'a [Server],
    extent: Extent,
    pub rows: Vec<Row<'a>>,
    pub clashes: Vec<Clash>,
    pub baselines: Vec<Baseline>,
}

#[derive(Debug)]
pub struct Row<'a> {
    pub peer: &'a Peer,
    pub findings: Result<Findings, NotRun>,
}

/// Two locks that do not exclude each other, and whether the scenarios found it.
#[derive(Debug)]
pub struct Clash {
    pub what: String,
    pub result: Outcome<Count>,
}

/// The wake-ups between two processes of this crate.
#[derive(Debug)]
pub struct Baseline {
    pub kind: &'static str,
    pub woken: Outcome<Vec<Duration>>,
}

impl<'a> Page<'a> {
    pub fn new(servers: &'a [Server], extent: Extent) -> Self {
        Self {
            servers,
            extent,
            rows: Vec::new(),
            clashes: Vec::new(),
            baselines: Vec::new(),
        }
    }

    /// Returns whether every peer ran.
    pub fn has_all_peers(&self) -> bool {
        self.rows.iter().filter(|row| row.findings.is_ok()).count() == PEERS.len()
    }

    /// Returns what failed. A peer whose language is not installed did not fail, but one peer must
    /// run.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.rows.iter().all(|row| row.findings.is_err()) {
            failures.push("no other library ran".to_owned());
        }
        for row in &self.rows {
            let name = row.peer.name();
            match &row.findings {
                Ok(findings) => {
                    let failed = findings.failures();
                    failures.extend(failed.iter().map(|failure| format!("{name}: {failure}")));
                }
                Err(NotRun::BuildFailed(error)) => failures.push(format!("{name}: {error}")),
                Err(NotRun::NoTool(_)) => {}
            }
        }
        for clash in &self.clashes {
            failures.extend(
                clash
                    .result
                    .as_ref()
                    .err()
                    .map(|error| format!("{}: {error}", clash.what)),
            );
        }
        for Baseline { kind, woken } in &self.baselines {
            failures.extend(woken.as_ref().err().map(|error| format!("{kind}: {error}")));
        }
        failures
    }

    pub fn text(&self) -> String {
        let [busy, paused, polling] = self.extent.counting.map(|length| length.as_secs());
        let processors = thread::available_parallelism().map_or(0, usize::from);
        let values = [
            ("{{locks}}", self.locks()),
            ("{{wake-ups}}", self.wake_ups()),
            ("{{counters}}", self.counters()),
            ("{{clashes}}", self.clashes()),
            ("{{total}}", self.total()),
            ("{{busy}}", busy.to_string()),
            ("{{paused}}", paused.to_string()),
            ("{{polling}}", polling.to_string()),
            ("{{pause}}", PAUSE.as_millis().to_string()),
            ("{{rounds}}", self.extent.wake_ups.to_string()),
            ("{{server}}", server_version(&self.servers[0])),
            ("{{processors}}", processors.to_string()),
        ];
        let page = include_str!("page.md").to_owned();
        values.iter().fold(page, |page, (mark, value)| {
            page.replace(mark, value.trim_end())
        })
    }

    /// Returns a line for each peer that ran, from `line`, and one for each that did not.
    fn lines(&self, columns: usize, line: impl Fn(&Peer, &Findings) -> Vec<String>) -> String {
        let row = |row: &Row<'_>| {
            let mut cells = vec![title(row.peer)];
            match &row.findings {
                Ok(findings) => cells.extend(line(row.peer, findings)),
                Err(error) => {
                    cells.push(match error {
                        NotRun::BuildFailed(_) => "not run: the build failed".to_owned(),
                        NotRun::NoTool(tool) => format!("not run: no {tool}"),
                    });
                    cells.resize(columns, String::new());
                }
            }
            table_row(&cells)
        };
        self.rows.iter().map(row).collect()
    }

    fn locks(&self) -> String {
        self.lines(2, |_, findings| {
            let versions = findings.versions.as_ref();
            vec![versions.map_or("FAILED", String::as_str).to_owned()]
        })
    }

    fn wake_ups(&self) -> String {
        let peers = self.lines(3, |_, findings| {
            vec![times(&findings.woken_here), times(&findings.woken_there)]
        });
        let ours = self.baselines.iter().map(|Baseline { kind, woken }| {
            let who = format!("this crate, `{kind}`");
            table_row(&[who, times(woken), "the same".to_owned()])
        });
        peers + &ours.collect::<String>()
    }

    fn counters(&self) -> String {
        self.lines(8, |_, findings| match &findings.counts {
            Ok(counts) => {
                let lost: u64 = counts.iter().map(|count| count.lost).sum();
                let cells = counts.iter().flat_map(|count| {
                    let (ours, peers) = count.shares.split_at(count.shares.len() / 2);
                    [share(peers), share(ours)]
                });
                [lost.to_string()].into_iter().chain(cells).collect()
            }
            Err(_) => vec!["FAILED".to_owned(); 7],
        })
    }

    fn clashes(&self) -> String {
        let line = |Clash { what, result }: &Clash| {
            let found = match result {
                Ok(count) => format!("{} of {}", count.lost, count.acquired()),
                Err(_) => "FAILED".to_owned(),
            };
            table_row(&[what.clone(), found])
        };
        self.clashes.iter().map(line).collect()
    }

    fn total(&self) -> String {
        let findings = self
            .rows
            .iter()
            .filter_map(|row| row.findings.as_ref().ok());
        let counts = findings
            .filter_map(|findings| findings.counts.as_ref().ok())
            .flatten();
        let (mut acquired, mut lost, mut failed) = (0, 0, 0);
        for count in counts {
            acquired += count.acquired();
            lost += count.lost;
            failed += count.shares.iter().map(|share| share.failed).sum::<u64>();
        }
        format!(
            "{} acquisitions, {lost} lost updates, {failed} failed attempts and releases",
            thousands(acquired)
        )
    }
}

fn title(peer: &Peer) -> String {
    format!("{} {}", peer.product, peer.lock)
}

fn table_row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the median and the maximum of sorted times.
fn times(times: &Outcome<Vec<Duration>>) -> String {
    let Ok(times) = times else {
        return "FAILED".to_owned();
    };
    let ms = |time: Duration| match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    };
    let middle = times.len() / 2;
    let median = (times[middle] + times[(times.len() - 1) / 2]) / 2;
    format!("{} ({})", ms(median), ms(times[times.len() - 1]))
}

/// Returns how often each process of a side had the lock, and its longest wait.
fn share(shares: &[Share]) -> String {
    let acquired: Vec<_> = shares
        .iter()
        .map(|share| thousands(share.acquired))
        .collect();
    let longest = shares.iter().map(|share| share.longest_wait).max();
    let longest = longest.unwrap_or_default().as_secs_f64();
    format!("{} ({longest:.1} s)", acquired.join(" + "))
}

fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

fn server_version(server: &Server) -> String {
    let info = server.command(&["INFO", "server"]);
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    let valkey = field("valkey_version:").map(|version| format!("Valkey {version}"));
    let redis = || format!("Redis {}", field("redis_version:").unwrap_or("?"));
    valkey.unwrap_or_else(redis).trim().to_owned()
}
