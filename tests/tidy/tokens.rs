//! Splits Rust code into tokens.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// A literal string or character.
    Literal,
    /// One character, or `::`, `->` or `=>`.
    Mark,
    /// An identifier, a keyword or a number.
    Word,
}

/// Splits code into its tokens, without comments.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    // A comment of the documentation would be an attribute.
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let lines = text
        .lines()
        .map(|line| Some(line).filter(|line| !is_comment(line)));
    let lines: Vec<_> = lines.map(Option::unwrap_or_default).collect();
    let mut tokens = Vec::new();
    add(lines.join("\n").parse().expect("Rust code"), &mut tokens);
    tokens
}

fn add(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut is_joint = false;
    for tree in stream {
        let line = tree.span().start().line;
        let was_joint = std::mem::take(&mut is_joint);
        let (kind, text) = match tree {
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Brace => ["{", "}"],
                    Delimiter::Bracket => ["[", "]"],
                    Delimiter::Parenthesis => ["(", ")"],
                    Delimiter::None => ["", ""],
                };
                tokens.push(Token::mark(open, line));
                add(group.stream(), tokens);
                tokens.push(Token::mark(close, group.span_close().start().line));
                continue;
            }
            TokenTree::Ident(word) => (TokenKind::Word, word.to_string()),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let is_number = text.starts_with(|c: char| c.is_ascii_digit());
                let kind = [TokenKind::Literal, TokenKind::Word][usize::from(is_number)];
                (kind, text)
            }
            TokenTree::Punct(mark) => {
                is_joint = mark.spacing() == Spacing::Joint;
                let before = tokens.last_mut().filter(|_| was_joint);
                if let Some(before) = before
                    && matches!(
                        (&*before.text, mark.as_char()),
                        (":", ':') | ("-" | "=", '>')
                    )
                {
                    before.text.push(mark.as_char());
                    continue;
                }
                (TokenKind::Mark, mark.to_string())
            }
        };
        tokens.push(Token { kind, text, line });
    }
}

impl Token {
    fn mark(text: &str, line: usize) -> Self {
        let (kind, text) = (TokenKind::Mark, text.to_owned());
        Self { kind, text, line }
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
fn tokens_are_words_marks_and_literals() {
    let found = tokens("/// d\na::b -> 'c' // d\n&'a \"b\n\" => 1_u8 (e)");
    let texts: Vec<_> = found.iter().map(|token| token.text.as_str()).collect();
    let expected = [
        "a", "::", "b", "->", "'c'", "&", "'", "a", "\"b\n\"", "=>", "1_u8", "(", "e", ")",
    ];
    assert_eq!(texts, expected);
    let lines: Vec<_> = found.iter().map(|token| token.line).collect();
    assert_eq!(lines, [2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
}
