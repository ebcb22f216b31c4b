//! The part of RESP that is needed to separate commands.

/// Parses the first command in `bytes`, an array of bulk strings. Returns it with its length in
/// bytes.
pub fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = header(bytes, 0)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, start) = header(bytes, at)?;
        let word = bytes.get(start..start + length)?;
        at = start + length + 2;
        if at > bytes.len() {
            return None;
        }
        words.push(word.to_vec());
    }
    Some((words, at))
}

/// Parses the number in the line at `at`. Returns it with the start of the next line.
fn header(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let end = line_end(bytes, at)?;
    let digits = std::str::from_utf8(bytes.get(at + 1..end)?).ok()?;
    Some((digits.parse().ok()?, end + 2))
}

fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?;
    Some(at + line.windows(2).position(|pair| pair == b"\r\n")?)
}
