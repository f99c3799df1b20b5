"""The table of the error-bounded mode: sizes at equal weight error, and rates."""

from benchmarks.report.markdown import blank_repeats, rate, table
from benchmarks.report.results import Section


def bounded_table(section: Section) -> str:
    """Return size, weight error and rates of every coder as a table."""
    rows = []
    names = blank_repeats(each.data for each in section.models)
    for name, each in zip(names, section.models, strict=True):
        check = each.check_rate
        rows.append(
            (
                name,
                each.coder,
                f"{each.percent:.2f} %",
                f"{each.error:.5f}" if each.error else "0",
                rate(each.encode_rate, 1e6, 0),
                f"{check.median / 1e6:.0f}" if check else "",
                rate(each.decode_rate, 1e6, 0),
            )
        )
    header = ("data", "coder", "size", "weight error", "encode MB/s", "check", "decode MB/s")
    return table(header, rows, numbers=range(2, len(header)))
