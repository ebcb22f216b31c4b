//! `quorlock status`: who holds locks, and who waits.

use serde::Serialize;

use crate::{
    args::{Common, Status},
    exit::Exit,
    failure::Failure,
    lists::ListReport,
    look::{Look, Verdict, look_at_all},
    masters::Masters,
    report::{print_json, say},
    runtime::block_on,
    style::{Colour, Style, clean},
    wanted::quoted,
};

pub(crate) mod text;

/// The JSON of `status`.
#[derive(Serialize)]
struct Report<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lists: Vec<ListReport>,
    locks: &'a [Look],
}

pub(crate) fn status(args: &Status, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find(common)?;
    let source = masters.source();
    block_on(async {
        let locks = masters.coordinator()?;
        let looks = look_at_all(&locks, &args.names).await?;
        if args.json {
            print_json(&Report {
                source: &source,
                lists: ListReport::all(&locks),
                locks: &looks,
            })?;
        } else {
            let style = Style::of_stdout();
            let blocks: Vec<_> = looks.iter().map(|look| text::block(look, style)).collect();
            let source = style.paint(
                Colour::Dim,
                &clean(&format!("the masters are those of {source}")),
            );
            say(format!("{}\n{source}\n", blocks.join("\n")))?;
        }
        // Without a quorum, nothing is certain.
        let worst = looks.iter().map(|look| look.verdict).max();
        let exit = worst.map_or(Exit::Success, Verdict::exit);
        let names = quoted(args.names.iter().map(String::as_str));
        let action = format!("cannot look at {names}");
        let mut refused = looks
            .iter()
            .filter_map(|look| look.refused(&locks, &action));
        match refused.next() {
            Some(failure) if exit == Exit::NoQuorum => Err(failure),
            _ => Ok(exit),
        }
    })
}
