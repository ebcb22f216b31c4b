use std::env;
use std::fs;
use std::process::ExitCode;

use quorlock_interop::page::{Baseline, Clash, Page, Row};
use quorlock_interop::pair::{Extent, Findings, Pair, wake_ups};
use quorlock_interop::peers::{self, Built, PEERS, Peer};
use quorlock_interop::process::Program;
use quorlock_interop::{in_repository, in_target, programs};
use testkit::server::{Server, masters};

const USAGE: &str = "usage: [--quick] [--only NAME,..]";

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((first, rest)) if first == "program" => programs::run(rest),
        _ => interop(&args),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Run {
    is_quick: bool,
    only: Vec<String>,
}

fn interop(args: &[String]) -> Result<(), String> {
    let run = Run::parse(args).ok_or(USAGE)?;
    if let Some(name) = run.unknown() {
        return Err(format!("no library has {name} in its name"));
    }
    fs::create_dir_all(in_target("")).map_err(|error| error.to_string())?;
    let servers = masters(5);
    let page = run.page(&servers);
    let failures = page.failures();
    let text = page.text();
    println!("{text}");
    let path = match !run.is_quick && page.has_all_peers() && failures.is_empty() {
        true => in_repository("docs/interop.md"),
        false => in_target("interop.md"),
    };
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("FAILED:\n{}", failures.join("\n"))),
    }
}

impl Run {
    fn parse(args: &[String]) -> Option<Self> {
        let mut run = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => run.is_quick = true,
                "--only" => run.only.extend(args.next()?.split(',').map(str::to_owned)),
                _ => return None,
            }
        }
        Some(run)
    }

    fn page<'a>(&self, servers: &'a [Server]) -> Page<'a> {
        let mut built = Built::default();
        let mut page = Page::new(servers, self.extent());
        for peer in PEERS.iter().filter(|peer| self.wants(peer)) {
            let program = peer.program(&mut built);
            if let Ok(program) = &program {
                println!("{}", peer.name());
                page.clashes.extend(self.clash(peer, program, servers));
            }
            let findings = program.map(|program| self.findings(peer, &program, servers));
            page.rows.push(Row { peer, findings });
        }
        println!("the faulty lock, and this crate alone");
        let mutex = peers::ours("mutex", "{name}");
        page.clashes
            .push(self.must_clash("the faulty lock", &mutex, &peers::faulty(), servers));
        for kind in ["mutex", "reentrant"] {
            let ours = peers::ours(kind, "{name}");
            let woken = wake_ups(&ours, &ours, servers, self.extent().wake_ups);
            page.baselines.push(Baseline { kind, woken });
        }
        page
    }

    fn findings(&self, peer: &Peer, program: &Program, servers: &[Server]) -> Findings {
        let pair = Pair {
            ours: &peer.ours(),
            ours_that_polls: &peer.ours_that_polls(),
            peer: program,
            masters: &servers[..peer.masters],
        };
        let is_reentrant = peer.ours == "reentrant";
        let findings = pair.findings(&peer.ours_as_other_kind(), is_reentrant, self.extent());
        findings
            .failures()
            .iter()
            .for_each(|failure| println!("  {failure}"));
        findings
    }

    /// Uses a peer in a way that the documentation warns of.
    fn clash(&self, peer: &Peer, program: &Program, servers: &[Server]) -> Option<Clash> {
        let what = match (peer.template, peer.masters) {
            ("{name}", 1) => format!("One {} on one of five masters", peer.lock),
            ("{name}", _) => return None,
            _ => format!("{} without the key template", peer.product),
        };
        let ours = peers::ours(peer.ours, "{name}");
        Some(self.must_clash(&what, &ours, program, servers))
    }

    fn must_clash(&self, what: &str, ours: &Program, peer: &Program, servers: &[Server]) -> Clash {
        let pair = Pair {
            ours,
            ours_that_polls: ours,
            peer,
            masters: servers,
        };
        Clash {
            what: what.to_owned(),
            result: pair.must_clash(self.extent().clash),
        }
    }

    fn extent(&self) -> Extent {
        match self.is_quick {
            true => Extent::QUICK,
            false => Extent::FULL,
        }
    }

    /// Returns a part of a name that no library has.
    fn unknown(&self) -> Option<&String> {
        let is_known = |name: &&String| PEERS.iter().any(|peer| peer.name().contains(*name));
        self.only.iter().find(|name| !is_known(name))
    }

    fn wants(&self, peer: &Peer) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| peer.name().contains(name))
    }
}
