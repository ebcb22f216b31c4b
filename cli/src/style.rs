//! Colours and tables for people.

use std::{env, io::IsTerminal};

use terminal_size::{Width, terminal_size_of};
use textwrap::{Options, WordSplitter, fill};

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
    /// The columns of the terminal. Text that is not for a terminal is cut nowhere.
    pub(crate) width: usize,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let is_terminal = stdout.is_terminal();
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let size = terminal_size_of(&stdout);
        let width = size.map_or(80, |(Width(columns), _)| columns.into());
        Self {
            has_colour: is_terminal && !is_dumb && !is_unwanted,
            width: if is_terminal { width } else { usize::MAX },
        }
    }

    /// Returns the [clean](clean) text in lines that begin in column `indent`, and end in column 80
    /// at most. A longer word has a line of its own. The caller has written the first margin.
    pub(crate) fn indented(self, text: &str, indent: usize) -> String {
        let margin = " ".repeat(indent);
        let options = Options::new(self.width.clamp(40, 80))
            .initial_indent(&margin)
            .subsequent_indent(&margin)
            .break_words(false)
            .word_splitter(WordSplitter::NoHyphenation);
        fill(&clean(text), options).trim_start().to_owned() + "\n"
    }

    /// Returns the [clean](clean) text in a colour.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        let text = clean(text);
        let code = match colour {
            Colour::Plain => return text,
            _ if !self.has_colour => return text,
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
        let width = |at: usize| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let aligned = cells.filter(|cell| !cell.is_wide);
            aligned.map(|cell| cell.text.chars().count()).max()
        };
        let widths: Vec<_> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
        let lines = rows.iter().map(|row| {
            let (mut line, mut used) = (String::new(), 0);
            for (at, cell) in row.iter().enumerate() {
                let gap = 2;
                let room = self.width.saturating_sub(used + gap);
                if room == 0 {
                    break;
                }
                let text = cut(&cell.text, room);
                let is_last = at + 1 == row.len();
                let width = text.chars().count();
                let missing = widths[at].saturating_sub(width);
                let pad = if is_last { 0 } else { missing };
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
}

/// Returns the heading of a table.
pub(crate) fn heading<const N: usize>(words: [&str; N]) -> Vec<Cell> {
    words.map(|word| Cell::new(Colour::Dim, word)).into()
}

/// Cuts a text to a number of columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    // Not every terminal shows an ellipsis of one character.
    let cut: String = text.chars().take(columns.saturating_sub(2)).collect();
    cut + &".."[..columns.min(2)]
}

/// Returns a text without characters that move the cursor, change colours or hide other characters.
/// Names of locks and texts of servers may contain them.
pub(crate) fn clean(text: &str) -> String {
    let is_hidden = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars()
        .map(|letter| if is_hidden(letter) { ' ' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Style = Style {
        has_colour: false,
        width: usize::MAX,
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
        let text = "  a    one\n  bcd  two..\n  a long t..\n";
        let narrow = Style { width: 12, ..PIPE };
        assert_eq!(narrow.table(&rows), text);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        let narrow = Style { width: 40, ..PIPE };
        let text = "one two three four five --six-seven eight";
        let lines = "one two three four five\n          --six-seven eight\n";
        assert_eq!(narrow.indented(text, 10), lines);
        let word = "a-word-of-more-than-forty-columns-in-one-line";
        assert_eq!(
            narrow.indented(&format!("{word} b"), 0),
            format!("{word}\nb\n")
        );
        assert_eq!(cut("abcd", 3), "a..");
        assert_eq!(cut("abc", 1), ".");
    }

    #[test]
    fn a_text_does_not_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{202e}d"), "a [2Jb c d");
        assert_eq!(PIPE.paint(Colour::Plain, "a\x07"), "a ");
    }
}
