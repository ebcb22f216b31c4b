//! Colours and tables for people.

use std::{env, io::IsTerminal};

use terminal_size::{Height, Width, terminal_size_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Bold,
    Dim,
    Green,
    Plain,
    Red,
    Yellow,
}

/// The way to write to a stream: with colours or not, and how wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    has_colour: bool,
    /// The size of the terminal. `None` if the stream is not a terminal.
    size: Option<(usize, usize)>,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let is_terminal = stdout.is_terminal();
        let size = terminal_size_of(&stdout).filter(|_| is_terminal);
        let size = size.map(|(Width(width), Height(height))| (width.into(), height.into()));
        Self {
            has_colour: is_terminal && wants_colour(),
            size: is_terminal.then(|| size.unwrap_or((80, 24))),
        }
    }

    #[cfg(test)]
    pub(crate) fn terminal(width: usize, height: usize) -> Self {
        Self {
            has_colour: false,
            size: Some((width, height)),
        }
    }

    pub(crate) fn is_terminal(self) -> bool {
        self.size.is_some()
    }

    pub(crate) fn height(self) -> Option<usize> {
        self.size.map(|(_, height)| height)
    }

    /// Returns the number of columns. Text that is not for a terminal is cut nowhere.
    pub(crate) fn width(self) -> usize {
        self.size.map_or(usize::MAX, |(width, _)| width)
    }

    /// Returns the number of columns for running text.
    pub(crate) fn text_width(self) -> usize {
        self.width().clamp(40, 80)
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Plain => return text.to_owned(),
            _ if !self.has_colour => return text.to_owned(),
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Returns aligned lines, indented by two columns. The last column of a row is cut at the edge
    /// of the terminal.
    pub(crate) fn table(self, rows: &[Vec<Cell>]) -> String {
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<_> = (0..columns)
            .map(|at| {
                rows.iter()
                    .map(|row| row.get(at).map_or(0, Cell::aligned))
                    .max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let lines = rows.iter().map(|row| {
            let (mut line, mut used) = (String::new(), 0);
            for (at, cell) in row.iter().enumerate() {
                let gap = 2;
                let room = self.width().saturating_sub(used + gap);
                if room == 0 {
                    break;
                }
                let text = cut(&cell.text, room);
                let is_last = at + 1 == row.len();
                let width = text.chars().count();
                let pad = if is_last {
                    0
                } else {
                    widths[at].saturating_sub(width)
                };
                line.push_str(&" ".repeat(gap));
                line.push_str(&self.paint(cell.colour, &text));
                line.push_str(&" ".repeat(pad));
                used += gap + width + pad;
            }
            line.push('\n');
            line
        });
        lines.collect()
    }
}

fn wants_colour() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// One cell of a table.
pub(crate) struct Cell {
    text: String,
    colour: Colour,
    /// `true` if the cell may reach into the columns to its right.
    is_wide: bool,
}

impl Cell {
    pub(crate) fn new(colour: Colour, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            colour,
            is_wide: false,
        }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(Colour::Plain, text)
    }

    pub(crate) fn wide(colour: Colour, text: impl Into<String>) -> Self {
        Self {
            is_wide: true,
            ..Self::new(colour, text)
        }
    }

    /// Returns the width that the column needs because of this cell.
    fn aligned(&self) -> usize {
        if self.is_wide {
            0
        } else {
            self.text.chars().count()
        }
    }
}

/// Returns the heading of a table.
pub(crate) fn heading<const N: usize>(words: [&str; N]) -> Vec<Cell> {
    let cells = words.map(|word| Cell::new(Colour::Dim, word));
    cells.into_iter().collect()
}

/// Returns a text from a server without control characters, which could move the cursor.
pub(crate) fn clean(text: &str) -> String {
    let letters = text.chars();
    let letters = letters.map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.collect()
}

/// Cuts a text to a number of columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let clean = clean(text);
    if clean.chars().count() <= columns {
        return clean;
    }
    let mut cut: String = clean.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Breaks a text into lines of at most `width` columns. A longer word has a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| {
            !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width
        });
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Style = Style {
        has_colour: false,
        size: None,
    };

    #[test]
    fn tables_are_aligned_and_cut_at_the_edge() {
        let rows = [
            vec![Cell::plain("a"), Cell::plain("one")],
            vec![Cell::plain("bcd"), Cell::plain("two three")],
            vec![Cell::wide(Colour::Red, "a long text")],
        ];
        let text = "  a    one\n  bcd  two three\n  a long text\n";
        assert_eq!(PIPE.table(&rows), text);
        let text = "  a    one\n  bcd  two …\n  a long te…\n";
        assert_eq!(Style::terminal(12, 24).table(&rows[..]), text);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a-very-long-word b", 4), ["a-very-long-word", "b"]);
        assert_eq!(cut("a\x1bb", 5), "a b");
    }
}
