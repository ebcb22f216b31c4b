"""Draws docs/pictures/peers.svg from the table in docs/comparison.md.

With --check, it only fails if the picture has other figures than the table.
"""

import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, TOP, ROW, LEFT, NUMBER = 860.0, 162.0, 46.0, 236.0, 62.0
TITLE = "Speed: the time of one cycle, and the cycles of many tasks"
SUBTITLE = (
    "A cycle acquires and releases a lock on five masters. The figures are those of the table in "
    "docs/comparison.md"
)
# How the names of columns begin, notes, and colours. The first figures are those of this crate.
PEERS = [
    ("quorlock", "this crate", "blue"),
    ("rslock", "a library", "grey"),
    ("a future per master", "over the redis crate, by hand", "grey"),
    ("bare", "raw bytes and epoll, by hand", "grey tint s-grey thin"),
]


def table():
    """Returns the numbers of tasks, and for each peer its name, note, colour and figures."""
    page = (ROOT / "docs/comparison.md").read_text()
    lines = page[page.index("| tasks |") :].split("\n\n")[0].splitlines()
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = rows[:4]
    peers = []
    for start, note, colour in PEERS:
        column = next(at for at, head in enumerate(heads) if head.startswith(start))
        name = start if start.startswith("a ") else heads[column]
        peers.append((name, note, colour, [number(row[column]) for row in rows]))
    for row, ours, bare in zip(rows, peers[0][3], peers[3][3]):
        ratio = f"{ours / bare:.2f}"
        if row[-1] != ratio:
            raise SystemExit(f"docs/comparison.md, {row[0]}: the ratio is {ratio}, not {row[-1]}")
    return [int(number(row[0])) for row in rows], peers


def number(cell):
    return float(re.match(r"[\d,]+", cell)[0].replace(",", ""))


def text(style, x, y, words):
    return f"<text class='{style}' x='{x:.1f}' y='{y:.1f}'>{escape(words)}</text>\n"


def draw(tasks, peers):
    """Returns what follows the title and the colours in the picture, and its figures as lines."""
    body, lines = text("f-ink big", 24, 36, TITLE) + text("f-soft", 24, 59, SUBTITLE), []
    for row, (name, note, _, _) in enumerate(peers):
        y = TOP + ROW * row
        body += text("f-ink bold", 24, y - 2, name) + text("f-soft", 24, y + 15, note)
    width = (WIDTH - 16 - LEFT) / len(tasks)
    for at, count in enumerate(tasks):
        left, columns = LEFT + width * at, range(1) if at == 0 else range(1, len(tasks))
        scale = (width - NUMBER) / max(figures[n] for *_, figures in peers for n in columns)
        what, better = [("median latency", "shorter"), ("cycles a second", "longer")][at > 0]
        named = "1 task" if count == 1 else f"{count} tasks"
        body += text("f-ink bold", left, TOP - 70, what)
        body += text("f-soft", left, TOP - 53, f"{better} is better")
        body += text("f-ink", left, TOP - 28, named)
        bottom = TOP + ROW * len(peers) - 26
        body += f"<path class='s-grid line' d='M{left:.1f} {TOP - 20:.1f}L{left:.1f} {bottom:.1f}'/>\n"
        for row, (name, _, colour, figures) in enumerate(peers):
            y, length = TOP + ROW * row, scale * figures[at]
            label = f"{figures[at]:.0f} us" if at == 0 else f"{figures[at]:,.0f}"
            body += (
                f"<rect class='f-{colour}' x='{left + 1:.1f}' y='{y - 12:.1f}' "
                f"width='{length:.1f}' height='24.0' rx='3'/>\n"
            )
            body += text("f-ink", left + 7 + length, y + 4.5, label)
            lines.append(f"{name}, {named}: {label}.\n")
    return body, lines


def main():
    path = ROOT / "docs/pictures/peers.svg"
    old = path.read_text()
    # The colours are those of the other pictures.
    style = re.search("<style>.*?</style>", old)[0]
    body, lines = draw(*table())
    height = int(TOP + ROW * len(PEERS))
    new = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 860 {height}' width='860' "
        f"height='{height}' role='img' aria-labelledby='title desc'>\n<title id='title'>{TITLE}"
        f"</title>\n<desc id='desc'>\n{SUBTITLE}.\n{''.join(lines)}</desc>\n{style}\n<rect class="
        f"'f-card s-grid thin' style='fill-opacity:1' x='.5' y='.5' width='859' "
        f"height='{height - 1}' rx='8'/>\n{body}</svg>\n"
    )
    if sys.argv[1:] != ["--check"]:
        path.write_text(new)
    elif new != old:
        raise SystemExit("docs/pictures/peers.svg has other figures: run ./dev picture")


if __name__ == "__main__":
    main()
