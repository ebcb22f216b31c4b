//! Splits Rust code into tokens.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Comment,
    /// A literal string or character.
    Literal,
    /// One character, or `::`, `->` or `=>`.
    Mark,
    /// An identifier, a keyword or a number.
    Word,
}

/// Splits code into its tokens.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(c) = rest.chars().next() {
        let (kind, length) = match c {
            _ if c.is_whitespace() => (None, c.len_utf8()),
            '/' if rest.starts_with("//") => (
                Some(TokenKind::Comment),
                rest.find('\n').unwrap_or(rest.len()),
            ),
            '/' if rest.starts_with("/*") => (
                Some(TokenKind::Comment),
                rest.find("*/").map_or(rest.len(), |end| end + 2),
            ),
            '"' => (Some(TokenKind::Literal), string_length(rest)),
            'r' | 'b' if raw_length(rest) > 0 => (Some(TokenKind::Literal), raw_length(rest)),
            '\'' if char_length(rest) > 0 => (Some(TokenKind::Literal), char_length(rest)),
            _ if is_in_word(c) => {
                let end = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
                (Some(TokenKind::Word), end)
            }
            _ if ["::", "->", "=>"].iter().any(|mark| rest.starts_with(mark)) => {
                (Some(TokenKind::Mark), 2)
            }
            _ => (Some(TokenKind::Mark), c.len_utf8()),
        };
        let (token, after) = rest.split_at(length);
        if let Some(kind) = kind {
            let text = token.to_owned();
            tokens.push(Token { kind, text, line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

pub(crate) fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = true; // skips the opening quote
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a raw string, or 0.
fn raw_length(text: &str) -> usize {
    let inside = text.trim_start_matches('b');
    let Some(inside) = inside.strip_prefix('r') else {
        return 0;
    };
    let hashes = inside.len() - inside.trim_start_matches('#').len();
    if !inside[hashes..].starts_with('"') {
        return 0;
    }
    let start = text.len() - inside.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[start..]
        .find(&end)
        .map_or(text.len(), |at| start + at + end.len())
}

/// Returns the length of a character literal, or 0 for a lifetime.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    let (Some((_, first)), Some((second, c))) = (chars.next(), chars.next()) else {
        return 0;
    };
    match first {
        '\\' => text[second + 1..]
            .find('\'')
            .map_or(0, |at| second + at + 2),
        _ if c == '\'' => second + 1,
        _ => 0,
    }
}

/// Returns whether the tokens begin with these texts.
pub(crate) fn is_at(tokens: &[Token], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && texts.iter().zip(tokens).all(|(text, t)| t.text == *text)
}

/// Returns the index of the token that closes the bracket at `open`.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

#[test]
fn tokens_are_words_marks_literals_and_comments() {
    let texts = |text| -> Vec<_> { tokens(text).into_iter().map(|token| token.text).collect() };
    assert_eq!(
        texts("a::b -> 'c' // d \"e"),
        ["a", "::", "b", "->", "'c'", "// d \"e"]
    );
    assert_eq!(
        texts(r#"'\'' '\\' &'a "b\"" c"#),
        [r"'\''", r"'\\'", "&", "'", "a", r#""b\"""#, "c"]
    );
    assert_eq!(
        texts("r#\"a \" b\"# br\"c\" /* d */ e"),
        ["r#\"a \" b\"#", "br\"c\"", "/* d */", "e"]
    );
    assert_eq!(tokens("a\n\"b\n\"\nc")[2].line, 4);
}
