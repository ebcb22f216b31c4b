//! Checks that the dashboard and the alerts use the metrics that the docs list, and all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{assert_none, source::read};

const DASHBOARD: &str = "monitoring/dashboard.json";
const ALERTS: &str = "monitoring/alerts.yml";
const PAGE: &str = "docs/operations.md";

/// The pages that say what to do.
const ADVICE: [&str; 2] = [PAGE, "docs/settings.md"];

/// The labels that Prometheus and the exporter add.
const ADDED_LABELS: &[&str] = &["instance", "job", "le"];

/// The endings that the exporter adds to the name of a histogram.
const HISTOGRAM_ENDINGS: &[&str] = &["_bucket", "_count", "_sum"];

/// The metrics of the docs by name, each with its labels and their values. The values of some
/// labels, such as the address of a master, are not known.
struct Known(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

/// A query, and the labels that a legend or a text shows of its result.
struct Query {
    place: String,
    text: String,
    shown: Vec<String>,
}

/// A metric in a query, with its comparisons of labels with values.
struct Selector<'a> {
    name: &'a str,
    matchers: Vec<(&'a str, &'a str)>,
}

#[test]
fn the_dashboard_and_the_alerts_use_what_the_docs_list() {
    let known = Known::new(&read(PAGE));
    let queries = dashboard_queries(&dashboard())
        .into_iter()
        .chain(alert_queries(&read(ALERTS)));
    let unknown = queries.flat_map(|query| known.unknown(&query));
    assert_none(&unknown.collect::<Vec<_>>());
}

#[test]
fn the_dashboard_shows_every_metric() {
    let known = Known::new(&read(PAGE));
    let queries = dashboard_queries(&dashboard());
    assert!(known.0.len() > 5, "the table of {PAGE} was not found");
    let shown: BTreeSet<_> = queries
        .iter()
        .flat_map(|query| selectors(&query.text))
        .filter_map(|selector| known.listed(selector.name))
        .collect();
    let missing = known.0.keys().filter(|name| !shown.contains(name.as_str()));
    let found: Vec<_> = missing
        .map(|name| format!("{DASHBOARD}: no panel shows {name}"))
        .collect();
    assert_none(&found);
}

#[test]
fn every_panel_says_what_to_do() {
    let pages = ADVICE.map(|page| (page, read(page)));
    let dashboard = dashboard();
    let panels = panels(&dashboard).filter(|panel| panel["type"] != "row");
    let names_sections = |text: &str| {
        pages.iter().any(|(name, page)| {
            let sections = text.rsplit_once(&format!("See {name}, section"));
            let sections = sections.map_or("", |(_, sections)| sections);
            let sections = sections.trim_start_matches('s').trim_matches([' ', '.']);
            let is_section = |title: &str| page.lines().any(|line| line == format!("## {title}"));
            sections.split(" and ").all(is_section)
        })
    };
    let found: Vec<_> = panels
        .filter(|panel| !names_sections(panel["description"].as_str().unwrap_or_default()))
        .map(|panel| format!("{DASHBOARD}: {} names no section of a page", panel["title"]))
        .collect();
    assert_none(&found);
}

#[test]
fn every_alert_has_a_test() {
    let tests = read("monitoring/alerts-test.yml");
    let alerts = read(ALERTS);
    let names: Vec<_> = alert_names(&alerts).collect();
    assert!(names.len() > 5, "the alerts of {ALERTS} were not found");
    let is_tested = |name: &&str| {
        let fires = format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\", severity=");
        tests.contains(&fires)
    };
    let untested = names.iter().filter(|name| !is_tested(name));
    let found: Vec<_> = untested
        .map(|name| format!("{ALERTS}: {name} has no test"))
        .collect();
    assert_none(&found);
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().into_iter().flatten()
}

fn dashboard_queries(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().unwrap();
            let shown = legend.split("{{").skip(1);
            let shown = shown.filter_map(|rest| Some(rest.split_once("}}")?.0.to_owned()));
            queries.push(Query {
                place: format!("{DASHBOARD}: {}", panel["title"]),
                text: target["expr"].as_str().unwrap().to_owned(),
                shown: shown.collect(),
            });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(text) = variable["query"]["query"].as_str() {
            let label = text.rsplit_once(", ").unwrap().1.trim_end_matches(')');
            queries.push(Query {
                place: format!("{DASHBOARD}: {}", variable["name"]),
                text: format!("{text} by ({label})"),
                shown: Vec::new(),
            });
        }
    }
    queries
}

fn alert_queries(alerts: &str) -> Vec<Query> {
    let texts = alerts.split("- alert: ").skip(1);
    let queries = texts.zip(alert_names(alerts)).map(|(text, name)| {
        let shown = text.split("$labels.").skip(1);
        Query {
            place: format!("{ALERTS}: {name}"),
            text: text.split("annotations:").next().unwrap().to_owned(),
            shown: shown.map(|rest| word(rest).to_owned()).collect(),
        }
    });
    queries.collect()
}

fn alert_names(alerts: &str) -> impl Iterator<Item = &str> {
    alerts.split("- alert: ").skip(1).map(word)
}

impl Known {
    fn new(page: &str) -> Self {
        let kinds = page.split("The label `kind` is ").nth(1).unwrap();
        let kinds = code(kinds.split('.').next().unwrap());
        let rows = page.lines().filter(|line| line.starts_with("| `quorlock_"));
        let metrics = rows.map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
            let [name, _, labels, meaning] = cells.as_slice() else {
                panic!("{PAGE}: a row with other cells: {row}");
            };
            let values = |label: &String| {
                if label == "kind" {
                    return kinds.clone();
                }
                let listed = meaning.split_once(&format!("`{label}`: "));
                code(listed.map_or("", |(_, values)| values))
            };
            let labels = code(labels).into_iter().map(|label| {
                let values = values(&label);
                (label, values)
            });
            (code(name).pop_first().unwrap(), labels.collect())
        });
        Self(metrics.collect())
    }

    /// Returns the name of the metric in the docs: the name of a series without its ending.
    fn listed<'a>(&self, series: &'a str) -> Option<&'a str> {
        let endings = HISTOGRAM_ENDINGS.iter();
        let of_histogram = endings.filter_map(|ending| series.strip_suffix(ending));
        let mut names = of_histogram.filter(|name| name.ends_with("_seconds"));
        let name = names.next().unwrap_or(series);
        self.0.contains_key(name).then_some(name)
    }

    fn unknown(&self, query: &Query) -> Vec<String> {
        let mut found = Vec::new();
        let mut labels: BTreeSet<_> = ADDED_LABELS.iter().copied().collect();
        for Selector { name, matchers } in selectors(&query.text) {
            let Some(metric) = self.listed(name).map(|name| &self.0[name]) else {
                found.push(format!("{}: there is no {name}", query.place));
                continue;
            };
            labels.extend(metric.keys().map(String::as_str));
            for (label, value) in matchers {
                let is_known = match metric.get(label) {
                    Some(values) if !values.is_empty() => {
                        value.split('|').all(|value| values.contains(value))
                    }
                    Some(_) => true,
                    None => ADDED_LABELS.contains(&label),
                };
                if !is_known {
                    found.push(format!("{}: {name} has no {label}={value}", query.place));
                }
            }
        }
        let kept: BTreeSet<_> = grouped(&query.text).collect();
        let unknown = kept.difference(&labels).copied();
        let shown = query.shown.iter().map(String::as_str);
        let lost = shown.filter(|label| !kept.contains(label));
        found.extend(
            unknown
                .chain(lost)
                .map(|label| format!("{}: the result has no label {label}", query.place)),
        );
        found
    }
}

/// Returns the words in backticks.
fn code(text: &str) -> BTreeSet<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    pieces.map(str::to_owned).collect()
}

/// Returns the word at the start of the text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn selectors(query: &str) -> Vec<Selector<'_>> {
    let starts = query.match_indices("quorlock_");
    let selectors = starts.map(|(start, _)| {
        let name = word(&query[start..]);
        let rest = query[start + name.len()..].strip_prefix('{');
        let inner = rest.and_then(|rest| rest.split('}').next());
        let matchers = inner.unwrap_or_default().split(", ");
        let matchers = matchers.filter_map(|matcher| {
            let (_, value) = matcher.split_once('"')?;
            Some((word(matcher), value.trim_end_matches('"')))
        });
        Selector {
            name,
            matchers: matchers.collect(),
        }
    });
    selectors.collect()
}

/// Returns the labels that a query groups by.
fn grouped(query: &str) -> impl Iterator<Item = &str> {
    let groups = query.split("by (").skip(1);
    groups.flat_map(|rest| rest.split(')').next().unwrap_or_default().split(", "))
}

#[test]
fn what_the_docs_do_not_list_is_found() {
    let known = Known::new(
        "| `quorlock_a_seconds` | histogram | `kind`, `end` | the time. `end`: `lost`, `won` |\n\
         | `quorlock_b_total` | counter | `master` | the number |\n\
         The label `kind` is `mutex` or `fair`. The `b`.\n",
    );
    let unknown = |text: &str, shown: &[&str]| {
        known.unknown(&Query {
            place: "p".into(),
            text: text.into(),
            shown: shown.iter().map(|label| (*label).to_owned()).collect(),
        })
    };
    for text in [
        "quorlock_b_total",
        "sum by (le, kind) (rate(quorlock_a_seconds_bucket{job=~\"$job\", end=~\"lost|won\"}[5m]))",
        "sum by (master, kind) (quorlock_b_total{master=\"$master\"} + quorlock_a_seconds_sum)",
    ] {
        assert_eq!(unknown(text, &[]), [""; 0], "{text}");
    }
    let found = [
        ("quorlock_c_total", "p: there is no quorlock_c_total"),
        (
            "quorlock_b_total_sum",
            "p: there is no quorlock_b_total_sum",
        ),
        (
            "quorlock_a_seconds_sum{end=~\"won|b\"}",
            "p: quorlock_a_seconds_sum has no end=won|b",
        ),
        (
            "quorlock_b_total{kind=\"fair\"}",
            "p: quorlock_b_total has no kind=fair",
        ),
        (
            "sum by (job, end) (quorlock_b_total)",
            "p: the result has no label end",
        ),
    ];
    for (text, expected) in found {
        assert_eq!(unknown(text, &[]), [expected]);
    }
    let text = "sum by (job) (quorlock_b_total)";
    assert_eq!(
        unknown(text, &["job", "master"]),
        ["p: the result has no label master"]
    );
}
