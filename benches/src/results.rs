//! All runs of a bench, and comparisons between them.

use crate::load::Flavour;
use crate::stats::{Outcome, median};

/// One run.
#[derive(Debug)]
pub struct Row {
    pub who: &'static str,
    pub flavour: Flavour,
    pub width: usize,
    pub outcome: Outcome,
    /// The processor time of one server per cycle.
    pub server_us: f64,
}

/// All runs in order. For one entrant, runtime and width, the n-th row belongs to the n-th round.
#[derive(Debug, Default)]
pub struct Results {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Metric {
    Throughput,
    P50,
    Cpu,
    ServerCpu,
}

impl Metric {
    fn of(self, row: &Row) -> f64 {
        let outcome = &row.outcome;
        match self {
            Self::Throughput => outcome.per_second,
            Self::P50 => outcome.p50_us,
            Self::Cpu => outcome.cpu_us,
            Self::ServerCpu => row.server_us,
        }
    }
}

impl Results {
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns the median over the rounds, or `None` if the entrant did not run.
    fn median(&self, metric: Metric, who: &str, flavour: Flavour, width: usize) -> Option<f64> {
        let values = self.values(metric, who, flavour, width);
        (!values.is_empty()).then(|| median(values))
    }

    /// Returns the runtime on which `who` has the better median, and that median.
    pub fn best(&self, metric: Metric, who: &str, width: usize) -> Option<(Flavour, f64)> {
        Flavour::ALL
            .into_iter()
            .filter_map(|flavour| Some((flavour, self.median(metric, who, flavour, width)?)))
            .reduce(
                |best, other| match (metric == Metric::Throughput) == (other.1 > best.1) {
                    true => other,
                    false => best,
                },
            )
    }

    /// Returns the ratio of `a` to `b`, each on its better runtime. The result is the median of the
    /// ratios within each round. So it does not change if the speed of the machine changes between
    /// rounds.
    pub fn ratio(&self, metric: Metric, a: &str, b: &str, width: usize) -> Option<f64> {
        let better = |who| Some((who, self.best(metric, who, width)?.0));
        self.ratio_on(metric, better(a)?, better(b)?, width)
    }

    /// Returns the ratio of `a` to `b`, each on the given runtime. The result is the median of the
    /// ratios within each round.
    pub fn ratio_on(
        &self,
        metric: Metric,
        a: (&str, Flavour),
        b: (&str, Flavour),
        width: usize,
    ) -> Option<f64> {
        let values = |(who, flavour)| self.values(metric, who, flavour, width);
        let pairs = values(a).into_iter().zip(values(b));
        let ratios: Vec<_> = pairs.map(|(a, b)| a / b).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }

    fn values(&self, metric: Metric, who: &str, flavour: Flavour, width: usize) -> Vec<f64> {
        self.rows
            .iter()
            .filter(|row| row.who == who && row.flavour == flavour && row.width == width)
            .map(|row| metric.of(row))
            .collect()
    }
}
