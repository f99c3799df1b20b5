"""The table of GGUF files: what was measured, and what others have published."""

from benchmarks.report.markdown import blank_repeats, rate, table
from benchmarks.report.results import Section


def gguf_table(section: Section) -> str:
    """Return sizes and rates as a table, with each quoted size among the coders of its data."""
    rows = []
    for each in section.models:
        check = each.check_rate
        rows.append(
            (
                each.data,
                each.coder,
                f"{each.percent:.2f} %",
                rate(each.encode_rate, 1e6, 1),
                f"{check.median / 1e6:.1f}" if check else "",
                rate(each.decode_rate, 1e6, 1),
            )
        )
    for quoted in section.quoted:
        at = max(i for i, row in enumerate(rows) if row[0] == quoted.data) + 1
        size = f"{quoted.percent:.2f} %"
        rows.insert(at, (quoted.data, f"{quoted.coder} (quoted)", size, "", "", ""))
    names = blank_repeats(row[0] for row in rows)
    shown = [(name, *row[1:]) for name, row in zip(names, rows, strict=True)]
    header = ("data", "coder", "size", "encode MB/s", "check", "decode MB/s")
    return table(header, shown, numbers=range(2, len(header)))
