//! What a server answers, and the commands that it reads, as RESP.

use std::mem;

/// What a server answers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A list.
    Array(Vec<Self>),
    /// A text, which may be binary.
    Bulk(Vec<u8>),
    /// A number that need not be whole, such as a score.
    Double(f64),
    /// An error, such as `WRONGTYPE Operation against ..`.
    Error(String),
    /// A whole number.
    Int(i64),
    /// Names and values.
    Map(Vec<(Self, Self)>),
    /// Nothing.
    Nil,
    /// Two values for each item. In RESP3, each item is a list of two. In RESP2, all values are one
    /// list.
    Pairs(Vec<(Self, Self)>),
    /// A message that answers no command, or that confirms a subscription.
    Push(Vec<Self>),
    /// A short text, such as `OK`.
    Status(String),
    /// A text for people.
    Verbatim(String),
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(super) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(super) fn bulks<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::bulk).collect())
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn map<V: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (V, V)>) -> Self {
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(name, value)| (Self::bulk(name), Self::bulk(value)));
        Self::Map(pairs.collect())
    }

    /// Appends the bytes of the reply. RESP2 has fewer types than RESP3.
    pub fn write(&self, is_resp3: bool, out: &mut Vec<u8>) {
        let list = |kind: u8, count: usize, items: &mut dyn Iterator<Item = &Self>, out: &mut _| {
            head(kind, count, out);
            items.for_each(|item| item.write(is_resp3, out));
        };
        match self {
            Self::Array(items) => list(b'*', items.len(), &mut items.iter(), out),
            Self::Bulk(text) => blob(b'$', text, out),
            Self::Double(number) if is_resp3 => line(b',', &written(*number), out),
            Self::Double(number) => blob(b'$', written(*number).as_bytes(), out),
            Self::Error(text) => line(b'-', text, out),
            Self::Int(number) => line(b':', &number.to_string(), out),
            Self::Map(pairs) => {
                let (kind, count) = if is_resp3 { (b'%', 1) } else { (b'*', 2) };
                let mut items = pairs.iter().flat_map(|(name, value)| [name, value]);
                list(kind, count * pairs.len(), &mut items, out);
            }
            Self::Nil => out.extend_from_slice(if is_resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Pairs(pairs) if is_resp3 => {
                head(b'*', pairs.len(), out);
                for (one, other) in pairs {
                    list(b'*', 2, &mut [one, other].into_iter(), out);
                }
            }
            Self::Pairs(pairs) => {
                let mut items = pairs.iter().flat_map(|(one, other)| [one, other]);
                list(b'*', 2 * pairs.len(), &mut items, out);
            }
            Self::Push(items) => {
                let kind = if is_resp3 { b'>' } else { b'*' };
                list(kind, items.len(), &mut items.iter(), out);
            }
            Self::Status(text) => line(b'+', text, out),
            Self::Verbatim(text) if is_resp3 => blob(b'=', format!("txt:{text}").as_bytes(), out),
            Self::Verbatim(text) => blob(b'$', text.as_bytes(), out),
        }
    }
}

fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    line(kind, &number.to_string(), out);
}

/// Writes a line. An error or a status of a script may have ends of lines, which become blanks.
fn line(kind: u8, text: &str, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(text.bytes().map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        other => other,
    }));
    out.extend_from_slice(b"\r\n");
}

fn blob(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    head(kind, text.len(), out);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Returns a number as a server writes it.
pub(super) fn written(number: f64) -> String {
    let is_plain = number == 0.0 || (1e-5..1e17).contains(&number.abs()) || number.is_infinite();
    if is_plain {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

/// What a connection has received and not executed.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// How many of the bytes have been read.
    read: usize,
    /// The words of an incomplete command, and how many are missing.
    words: Vec<Vec<u8>>,
    missing: usize,
}

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the first command, which may also be a line of words. Returns `None` if the command is
    /// incomplete, and an error if the bytes are no command.
    pub(super) fn take_command(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        while let Some((line, start)) = take_line(&self.bytes, self.read) {
            self.read = if self.missing > 0 {
                let end = start + length_of(line)? + 2;
                let Some(word) = self.bytes.get(start..end) else {
                    return Ok(None);
                };
                self.words.push(word[..word.len() - 2].to_vec());
                self.missing -= 1;
                end
            } else if let Some(count) = line.strip_prefix(b"*") {
                self.missing = number(count, 1_048_576).ok_or("invalid multibulk length")?;
                start
            } else {
                let words = line.split(u8::is_ascii_whitespace);
                let words = words.filter(|word| !word.is_empty());
                self.words.extend(words.map(<[u8]>::to_vec));
                start
            };
            if self.missing == 0 && !self.words.is_empty() {
                return Ok(Some(mem::take(&mut self.words)));
            }
        }
        Ok(None)
    }
}

/// Returns the length of the word that follows this line.
fn length_of(line: &[u8]) -> Result<usize, String> {
    let length = line.strip_prefix(b"$").ok_or_else(|| {
        let found = line.first().map_or('\n', |byte| char::from(*byte));
        format!("expected '$', got '{found}'")
    })?;
    Ok(number(length, 512 << 20).ok_or("invalid bulk length")?)
}

/// Returns the line that begins at `from`, and where the next one begins.
fn take_line(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = &rest[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), from + end + 1))
}

/// Returns a length of at most `most`. A negative length counts as 0.
fn number(digits: &[u8], most: i64) -> Option<usize> {
    let number: i64 = str::from_utf8(digits).ok()?.parse().ok()?;
    usize::try_from(number.max(0))
        .ok()
        .filter(|_| number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_from_any_pieces() {
        let stream = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*0\r\n\r\nPING a\r\n*1\r\n$0\r\n\r\n";
        let expected: [&[&[u8]]; 3] = [&[b"GET", b"\r\n"], &[b"PING", b"a"], &[b""]];
        for size in 1..=stream.len() {
            let (mut input, mut found) = (Input::default(), Vec::new());
            for piece in stream.chunks(size) {
                input.push(piece);
                while let Some(words) = input.take_command().unwrap() {
                    found.push(words);
                }
            }
            assert_eq!(found, expected, "pieces of {size}");
            input.push(b"");
            assert_eq!(input.bytes, b"");
        }
    }

    #[test]
    fn nonsense_is_no_command() {
        for (nonsense, expected) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1048577\r\n", "invalid multibulk length"),
            ("*1\r\n:1\r\n", "expected '$', got ':'"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
        ] {
            let mut input = Input::default();
            input.push(nonsense.as_bytes());
            assert_eq!(input.take_command().unwrap_err(), expected);
        }
    }
}
