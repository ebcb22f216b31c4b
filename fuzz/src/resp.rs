//! The parser of replies: it finds the same replies however the stream is cut, and agrees with the
//! `redis` crate.

use arbitrary::{Arbitrary, Unstructured};
use quorlock::__internals::{read_reply, reply_lengths};
use redis::Value as Parsed;

pub fn run(input: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else {
        return;
    };
    let mut stream = Vec::new();
    for part in &input.stream {
        match part {
            Part::Bytes(bytes) => stream.extend_from_slice(bytes),
            Part::Value(value) => check_value(value, &mut stream),
        }
    }
    let whole = reply_lengths(&[&stream]);
    assert_eq!(reply_lengths(&pieces(&stream, &input.pieces)), whole);
    for cut in 1..stream.len().min(MOST_CUTS) {
        let (start, end) = stream.split_at(cut);
        assert_eq!(reply_lengths(&[start, end]), whole, "{cut}");
    }
    let mut rest = &stream[..];
    for length in whole.0 {
        let (reply, after) = rest.split_at(length);
        check_reply(reply);
        rest = after;
    }
}

/// The most places at which a stream is cut in two.
const MOST_CUTS: usize = 100;

/// Appends the value, and checks that the parser finds its end.
fn check_value(value: &Value, stream: &mut Vec<u8>) {
    let start = stream.len();
    value.encode(stream, 0);
    let value = &stream[start..];
    assert_eq!(
        reply_lengths(&[value]),
        (vec![value.len()], None),
        "{value:?}"
    );
    let part = &value[..value.len() - 1];
    assert_eq!(reply_lengths(&[part]), (vec![], None), "{value:?}");
}

fn pieces<'a>(stream: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, after) = rest.split_at(usize::from(*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Checks that the crate reads a whole reply as the `redis` crate does.
fn check_reply(reply: &[u8]) {
    let ours = read_reply(reply);
    let Ok(theirs) = redis::parse_redis_value(reply) else {
        return;
    };
    let expected = match theirs {
        Parsed::Int(number) => format!("Int({number})"),
        // The redis crate ignores the rest of a line that begins like nil.
        Parsed::Nil if reply[0] == b'_' && reply.len() > 3 => "Other".to_owned(),
        Parsed::Nil => "Nil".to_owned(),
        Parsed::Okay => "Ok".to_owned(),
        Parsed::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(text) => format!("Text({text:?})"),
            // The crate escapes the bytes that are not UTF-8.
            Err(_) => return assert!(ours.starts_with("Text(") && ours.contains("\\x"), "{ours}"),
        },
        Parsed::ServerError(_) => return assert!(ours.starts_with("Error("), "{ours}"),
        _ => "Other".to_owned(),
    };
    assert_eq!(ours, expected, "{:?}", String::from_utf8_lossy(reply));
}

#[derive(Arbitrary, Debug)]
struct Input {
    pieces: Vec<u8>,
    stream: Vec<Part>,
}

#[derive(Arbitrary, Debug)]
enum Part {
    Bytes(Vec<u8>),
    Value(Value),
}

/// A well-formed value of RESP2 or RESP3.
#[derive(Arbitrary, Debug)]
enum Value {
    Array(Vec<Self>),
    Attribute(Vec<(Self, Self)>, Box<Self>),
    BigNumber(i64),
    BlobError(Vec<u8>),
    Boolean(bool),
    Bulk(Vec<u8>),
    Double(f64),
    Error(String),
    Int(i64),
    Map(Vec<(Self, Self)>),
    Nil,
    NilArray,
    NilBulk,
    Push(Vec<Self>),
    Set(Vec<Self>),
    Simple(String),
    Verbatim(String),
}

impl Value {
    fn encode(&self, out: &mut Vec<u8>, depth: usize) {
        const DEEPEST: usize = 60;
        let line = |text: &str| text.replace(['\r', '\n'], " ");
        let blob = |mark: char, text: &[u8]| {
            [
                format!("{mark}{}\r\n", text.len()).as_bytes(),
                text,
                b"\r\n",
            ]
            .concat()
        };
        let encoded = match self {
            _ if depth > DEEPEST => "_\r\n".into(),
            Self::Array(values) => return encode_all('*', values, out, depth),
            Self::Attribute(pairs, value) => {
                encode_pairs('|', pairs, out, depth);
                return value.encode(out, depth + 1);
            }
            Self::BigNumber(number) => format!("({number}\r\n").into(),
            Self::BlobError(bytes) => blob('!', bytes),
            Self::Boolean(is_true) => format!("#{}\r\n", if *is_true { 't' } else { 'f' }).into(),
            Self::Bulk(bytes) => blob('$', bytes),
            Self::Double(number) => format!(",{number}\r\n").into(),
            Self::Error(text) => format!("-{}\r\n", line(text)).into(),
            Self::Int(number) => format!(":{number}\r\n").into(),
            Self::Map(pairs) => return encode_pairs('%', pairs, out, depth),
            Self::Nil => "_\r\n".into(),
            Self::NilArray => "*-1\r\n".into(),
            Self::NilBulk => "$-1\r\n".into(),
            Self::Push(values) => return encode_all('>', values, out, depth),
            Self::Set(values) => return encode_all('~', values, out, depth),
            Self::Simple(text) => format!("+{}\r\n", line(text)).into(),
            Self::Verbatim(text) => blob('=', format!("txt:{text}").as_bytes()),
        };
        out.extend_from_slice(&encoded);
    }
}

fn encode_all(mark: char, values: &[Value], out: &mut Vec<u8>, depth: usize) {
    out.extend_from_slice(format!("{mark}{}\r\n", values.len()).as_bytes());
    values.iter().for_each(|value| value.encode(out, depth + 1));
}

fn encode_pairs(mark: char, pairs: &[(Value, Value)], out: &mut Vec<u8>, depth: usize) {
    out.extend_from_slice(format!("{mark}{}\r\n", pairs.len()).as_bytes());
    for (key, value) in pairs {
        key.encode(out, depth + 1);
        value.encode(out, depth + 1);
    }
}
