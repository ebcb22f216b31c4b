//! Checks that the imports of the rooms of a floor have no cycle. A room is a folder, or a file
//! next to it.
//!
//! A file depends on the files that it names in a `use` or another path. Each path is resolved to
//! the deepest file that it names. A name that a parent re-exports is a dependency on the parent.
//! `mod child;` is no dependency.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::{Source, sources};

/// The files or rooms that each one depends on, each with a line that names it.
#[derive(Debug, Default)]
struct Graph(BTreeMap<String, BTreeMap<String, usize>>);

#[test]
fn rooms_have_no_cycle() {
    let graph = graph(&sources());
    let floors = [
        "src/core/",
        "src/driver/",
        "src/machine/",
        "src/master/",
        "src/observe/",
    ];
    for floor in floors {
        let rooms = rooms(&graph, floor);
        if let Some(cycle) = shortest_cycle(&rooms) {
            panic!("a cycle of rooms:\n{}\n", describe(&rooms, &cycle));
        }
    }
}

/// Returns the rooms of a floor. Its `mod.rs` is no room.
fn rooms(graph: &Graph, floor: &str) -> Graph {
    let room = |path: &str| {
        let rest = path.strip_prefix(floor)?;
        let first = rest.split('/').next()?;
        (first != "mod.rs").then(|| format!("{floor}{first}"))
    };
    let mut rooms = Graph::default();
    for (file, named) in &graph.0 {
        for (other, line) in named {
            if let (Some(from), Some(to)) = (room(file), room(other))
                && from != to
            {
                let from = rooms.0.entry(from).or_default();
                from.entry(to.clone()).or_insert(*line);
                rooms.0.entry(to).or_default();
            }
        }
    }
    rooms
}

/// Returns the graph of the files.
fn graph(sources: &[Source]) -> Graph {
    let files: BTreeMap<_, _> = sources.iter().map(|s| (s.module(), &s.path)).collect();
    let modules: BTreeSet<_> = files.keys().cloned().collect();
    let mut graph = Graph::default();
    for source in sources {
        let edges = graph.0.entry(source.path.clone()).or_default();
        for path in source.paths(&modules) {
            let mut prefixes = (0..=path.segments.len()).rev();
            let file = prefixes.find_map(|length| files.get(&path.segments[..length]));
            if let Some(file) = file.filter(|file| !path.is_outside() && **file != &source.path) {
                edges.entry((*file).clone()).or_insert(path.line);
            }
        }
    }
    graph
}

fn shortest_cycle(graph: &Graph) -> Option<Vec<&String>> {
    let cycles = graph.0.keys().filter_map(|start| cycle_from(graph, start));
    cycles.min_by_key(Vec::len)
}

/// Returns the rooms on a shortest path of imports from a room back to itself.
fn cycle_from<'a>(graph: &'a Graph, start: &'a String) -> Option<Vec<&'a String>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in graph.0.get(way[way.len() - 1])?.keys() {
            if next == start {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

fn describe(graph: &Graph, cycle: &[&String]) -> String {
    let next = cycle.iter().cycle().skip(1);
    let steps = cycle.iter().zip(next);
    let lines = steps.map(|(from, to)| format!("{from}:{} names {to}", graph.0[*from][*to]));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_cycle_is_found() {
    for (files, expected) in [
        (
            &[
                ("f/a", "use crate::f::b::B;"),
                ("f/b", "\nfn f(_: crate::f::a::A) {}"),
            ][..],
            "src/f/a.rs:1 names src/f/b.rs\nsrc/f/b.rs:2 names src/f/a.rs",
        ),
        (
            &[
                ("f/a", "use crate::f::b;"),
                ("f/b", "use crate::f::c::C;"),
                ("f/c/mod", "mod d;"),
                ("f/c/d", "use super::super::{a, x};"),
            ],
            "src/f/a.rs:1 names src/f/b.rs\nsrc/f/b.rs:1 names src/f/c\nsrc/f/c:1 names src/f/a.rs",
        ),
        (
            &[
                ("f/a/one", "use crate::f::b::two::T;"),
                ("f/a/other", ""),
                ("f/b/one", "use crate::f::a::other::O;"),
                ("f/b/two", "use crate::f::a::other::O;"),
                ("f/c", "use crate::f::b::one::O;"),
            ],
            "src/f/a:1 names src/f/b\nsrc/f/b:1 names src/f/a",
        ),
    ] {
        let rooms = rooms(&graph(&made_up(files)), "src/f/");
        let cycle = shortest_cycle(&rooms).unwrap();
        assert_eq!(describe(&rooms, &cycle), expected);
    }
}

#[test]
fn no_cycle_is_made_up() {
    for files in [
        &[
            ("a/mod", "mod b;\nmod c;"),
            ("a/b", "use super::c::C;"),
            ("a/c", ""),
        ][..],
        &[
            ("lib", "pub use a::A;"),
            ("a", "pub(in crate::b) fn f() { std::a::b(); redis::cmd() }"),
            ("redis", "use crate::a;"),
        ],
        &[("a", "use self::B; enum B { C } fn f() { B::C; Self::f(); }")],
    ] {
        let graph = graph(&made_up(files));
        assert_eq!(shortest_cycle(&graph), None, "{graph:?}");
    }
}

fn made_up(files: &[(&str, &str)]) -> Vec<Source> {
    let source = |(path, text): &(&str, &str)| Source::new(&format!("src/{path}.rs"), text);
    files.iter().map(source).collect()
}
