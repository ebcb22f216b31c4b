//! The picture of the bench `peers`, drawn from the table in `docs/comparison.md`.

use std::ops::Range;

use crate::Result;
use crate::svg::{Svg, WIDTH};

/// One row of the picture.
#[derive(Debug)]
struct Peer {
    name: String,
    note: &'static str,
    colour: &'static str,
    /// The latency in microseconds, and the cycles a second for each number of tasks.
    figures: Vec<f64>,
}

/// The names of the columns in the table, and how they are drawn. The first figures are those of
/// this crate.
const PEERS: [(&str, &str, &str); 4] = [
    ("quorlock", "this crate", "blue"),
    ("rslock", "a library", "grey"),
    (
        "a future per master",
        "over the redis crate, by hand",
        "grey",
    ),
    (
        "bare",
        "raw bytes and epoll, by hand",
        "grey tint s-grey thin",
    ),
];

pub fn picture(page: &str) -> Result<String> {
    let table = Table::find(page)?;
    let peers = PEERS.map(|(name, note, colour)| table.peer(name, note, colour));
    let peers: Vec<_> = peers.into_iter().collect::<Result<_>>()?;
    Ok(draw(&table.tasks()?, &peers))
}

/// The cells of the table in the page.
struct Table<'a> {
    rows: Vec<Vec<&'a str>>,
}

impl<'a> Table<'a> {
    fn find(page: &'a str) -> Result<Self> {
        let lines = page
            .lines()
            .skip_while(|line| !line.starts_with("| tasks |"));
        let lines = lines.take_while(|line| line.starts_with('|'));
        let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
        let rows: Vec<_> = lines.map(cells).collect();
        match rows.len() {
            7 => Self { rows }.checked(),
            count => Err(format!("the table of docs/comparison.md has {count} lines").into()),
        }
    }

    /// Checks that each figure in the last column is the quotient of two columns beside it.
    fn checked(self) -> Result<Self> {
        let column = |name| self.rows[0].iter().position(|head| head.starts_with(name));
        let columns = column("quorlock").zip(column("bare"));
        let (ours, bare) = columns.ok_or("the table has no column quorlock or bare")?;
        for row in self.figures() {
            let ratio = number(row[ours])? / number(row[bare])?;
            let ratio = format!("{ratio:.2}");
            let shown = *row.last().ok_or("an empty row")?;
            if shown != ratio {
                return Err(format!("{}: the ratio is {ratio}, and not {shown}", row[0]).into());
            }
        }
        Ok(self)
    }

    /// Returns the rows with figures.
    fn figures(&self) -> &[Vec<&'a str>] {
        &self.rows[2..6]
    }

    /// Returns the numbers of tasks.
    fn tasks(&self) -> Result<Vec<f64>> {
        self.figures().iter().map(|row| number(row[0])).collect()
    }

    fn peer(&self, name: &str, note: &'static str, colour: &'static str) -> Result<Peer> {
        let column = self.rows[0].iter().position(|head| head.starts_with(name));
        let column = column.ok_or_else(|| format!("the table has no column {name}"))?;
        let name = match name {
            "a future per master" => name.to_owned(),
            _ => self.rows[0][column].to_owned(),
        };
        let figures = self.figures().iter().map(|row| number(row[column]));
        let figures = figures.collect::<Result<_>>()?;
        Ok(Peer {
            name,
            note,
            colour,
            figures,
        })
    }
}

/// Returns the number with which a cell begins, such as `27,200` or `144 us`.
fn number(cell: &str) -> Result<f64> {
    let cell = cell.trim_end_matches(|c: char| !c.is_ascii_digit());
    let end = cell.find(|c: char| !c.is_ascii_digit() && c != ',');
    let digits = cell[..end.unwrap_or(cell.len())].replace(',', "");
    Ok(digits
        .parse()
        .map_err(|_| format!("{cell:?} begins with no number"))?)
}

const TOP: f64 = 162.0;
const ROW: f64 = 46.0;
const LEFT: f64 = 236.0;
/// The room for the number after a bar.
const NUMBER: f64 = 62.0;

fn draw(tasks: &[f64], peers: &[Peer]) -> String {
    let mut svg = Svg::new(
        TOP + ROW * peers.len() as f64,
        "Speed: the time of one cycle, and the cycles of many tasks",
        "A cycle acquires and releases a lock on five masters. The figures are those of the table \
         in docs/comparison.md",
    );
    for (row, peer) in peers.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        svg.text("f-ink bold", (24.0, y - 2.0), &peer.name);
        svg.text("f-soft", (24.0, y + 15.0), peer.note);
    }
    let width = (WIDTH - 16.0 - LEFT) / tasks.len() as f64;
    let latency = tallest(peers, 0..1);
    let throughput = tallest(peers, 1..tasks.len());
    for (at, tasks) in tasks.iter().enumerate() {
        let column = Column {
            at,
            left: LEFT + width * at as f64,
            scale: (width - NUMBER) / if at == 0 { latency } else { throughput },
        };
        column.draw(&mut svg, *tasks, peers);
    }
    svg.finish()
}

fn tallest(peers: &[Peer], columns: Range<usize>) -> f64 {
    let figures = peers.iter().flat_map(|peer| &peer.figures[columns.clone()]);
    figures.fold(0.0, |top, figure| top.max(*figure))
}

/// The bars for one number of tasks.
struct Column {
    at: usize,
    left: f64,
    /// The pixels for one microsecond or one cycle a second.
    scale: f64,
}

impl Column {
    fn draw(&self, svg: &mut Svg, tasks: f64, peers: &[Peer]) {
        let left = self.left;
        let tasks = match tasks {
            1.0 => "1 task".to_owned(),
            _ => format!("{tasks} tasks"),
        };
        let (what, better) = match self.at {
            0 => ("median latency", "shorter is better"),
            _ => ("cycles a second", "longer is better"),
        };
        svg.text("f-ink bold", (left, TOP - 70.0), what);
        svg.text("f-soft", (left, TOP - 53.0), better);
        svg.text("f-ink", (left, TOP - 28.0), &tasks);
        let bottom = TOP + ROW * peers.len() as f64 - 26.0;
        svg.line("s-grid line", (left, TOP - 20.0), (left, bottom));
        for (row, peer) in peers.iter().enumerate() {
            let y = TOP + ROW * row as f64;
            let figure = peer.figures[self.at];
            let end = left + 1.0 + self.scale * figure;
            svg.bar(&format!("f-{}", peer.colour), (left + 1.0, end), y, 24.0);
            let label = match self.at {
                0 => format!("{figure} us"),
                _ => thousands(figure),
            };
            svg.text("f-ink", (end + 6.0, y + 4.5), &label);
            svg.figure(&format!("{}, {tasks}: {label}.", peer.name));
        }
    }
}

/// Returns a number as the page writes it, such as `27,200`.
fn thousands(number: f64) -> String {
    let (thousands, rest) = ((number / 1000.0).floor(), number % 1000.0);
    match thousands {
        0.0 => format!("{rest}"),
        _ => format!("{thousands},{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_in_the_page_are_those_of_its_figures() {
        let page = include_str!("../../docs/comparison.md");
        Table::find(page).map(drop).unwrap();
        let wrong = page.replace("| 1, median latency | ", "| 1, median latency | 9");
        let error = Table::find(&wrong).map(drop).unwrap_err().to_string();
        assert!(error.contains("the ratio is 0."), "{error}");
    }
}
