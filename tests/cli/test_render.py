"""What the pages say, never how they are laid out."""

import io
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from unweight.operations.report import HeaderReport, OperationReport, StageReport, StagesReport
from unweight_cli.render import inspection, operations

ReportOf = Callable[[str], OperationReport]


def shown(parts: Iterable[RenderableType], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


def row(text: str, start: str) -> list[str]:
    """Return the cells of the line that starts with ``start``."""
    (line,) = (line for line in text.splitlines() if line.strip().startswith(start))
    return [cell for cell in line.strip().split("  ") if cell]


def test_compress_shows_sizes_by_kind_and_they_add_up(operation: ReportOf) -> None:
    text = shown(operations.compressed(operation("compress")))
    kinds = ("embedding", "attention", "feed-forward", "norm", "other", "header", "other files")
    positions = [text.index(f"\n  {kind} ") for kind in kinds]
    assert positions == sorted(positions)
    assert [cell.strip() for cell in row(text, "embedding")] == [
        "embedding",
        "BF16",
        "1",
        "128 kB",
        "84.0 kB",
        "65.6 %",
    ]
    assert "171 kB" in row(text, "total")[2]
    assert "66.6 %" in row(text, "total")[-1]


def test_compress_says_what_was_verified_and_what_to_run_next(
    operation: ReportOf,
) -> None:
    text = shown(operations.compressed(operation("compress")))
    assert "33.4 % smaller" in text
    assert row(text, "checked")[-1].strip() == "bit-exact: verified"
    assert "unweight decompress model.unweight.safetensors" in text
    assert "2 threads" in text
    assert "portable kernels" in text


def test_compress_says_when_the_result_is_larger(operation: ReportOf) -> None:
    grown = replace(operation("compress"), source_bytes=100, target_bytes=101)
    assert "1.0 % larger" in shown(operations.compressed(grown))


def test_compress_without_tensors_and_bytes_still_has_a_page(operation: ReportOf) -> None:
    empty = replace(operation("compress"), files=(), source_bytes=0, target_bytes=0)
    assert "total" in shown(operations.compressed(empty))


def test_a_path_with_spaces_can_be_pasted(operation: ReportOf) -> None:
    spaced = replace(operation("compress"), target="my model.safetensors")
    assert "unweight decompress 'my model.safetensors'" in shown(operations.compressed(spaced))


def test_decompress_shows_the_digest_and_rates_the_restored_bytes(
    operation: ReportOf,
) -> None:
    report = replace(operation("decompress"), source_bytes=50, target_bytes=1000, seconds=1.0)
    text = shown(operations.decompressed(report))
    assert report.files[0].source_sha256 in text
    assert "50 B → 1.00 kB" in text
    assert "1.00 kB/s" in text


def test_verify_names_every_file_of_a_directory(operation: ReportOf) -> None:
    report = operation("verify")
    (file,) = report.files
    shards = tuple(replace(file, source=f"dir/shard-{number}.safetensors") for number in (1, 2))
    text = shown(operations.verified(replace(report, source="dir", target="", files=shards)))
    assert "shard-1.safetensors" in text
    assert "shard-2.safetensors" in text
    assert "against" not in text


def test_verify_says_what_it_compared_with(operation: ReportOf) -> None:
    text = shown(operations.verified(replace(operation("verify"), target="original")))
    assert row(text, "against")[-1].strip() == "original"


def test_header_of_a_compressed_file(header_report: HeaderReport) -> None:
    text = shown(inspection.header(header_report))
    for fact in ("unweight 9.8.7", "lossless", header_report.source_sha256, "bits=12", "113,264"):
        assert fact in text
    assert "2 of them stored unchanged" in text
    assert "(1,000 characters)" in text


def test_header_of_a_file_that_unweight_did_not_write(header_report: HeaderReport) -> None:
    plain = replace(header_report, format_version=0, pipelines=(), source_sha256="")
    text = shown(inspection.header(plain))
    assert "not written by Unweight" in text
    assert "SHA-256" not in text


def test_header_names_the_error_bound(header_report: HeaderReport) -> None:
    bounded = replace(header_report, mode="error-bounded", epsilon=0.001)
    assert "ε = 0.001" in shown(inspection.header(bounded))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tensor_names_are_complete_and_harmless(header_report: HeaderReport, width: int) -> None:
    listed = header_report.tensors
    text = shown(inspection.tensors(listed, len(listed)), width)
    column = text.splitlines()[0].index("dtype")
    names = "".join(line[:column].strip() for line in text.splitlines())
    assert "model.layers.0.self_attn.q_proj.weight" in names
    assert r"evil\x1b[31m[bold]\nname" in names
    assert "\x1b" not in text


def test_a_shortened_list_says_so(header_report: HeaderReport) -> None:
    assert "2 of 5 tensors" in shown(inspection.tensors(header_report.tensors[:2], 5))
    assert " of 5 tensors" not in shown(inspection.tensors(header_report.tensors, 5))


def test_tensors_have_an_error_where_some_were_changed(header_report: HeaderReport) -> None:
    first, *rest = header_report.tensors
    assert "error" not in shown(inspection.tensors(header_report.tensors, 5))
    changed = [replace(first, epsilon=0.01, error=0.00987), *rest]
    lines = shown(inspection.tensors(changed, 5)).splitlines()
    assert lines[0].split()[-1] == "error"
    assert lines[2].split()[-1] == "0.00987"
    assert lines[3].split()[-1] == "exact"


def test_stages_show_facts_bits_and_a_chart(stages_report: StagesReport) -> None:
    text = shown(inspection.stages(stages_report))
    for fact in ("113-127", "mantissa_bits=1", "10.500", "10.400", "3.500", "rans 1", "80.0 %"):
        assert fact in text
    assert "█" in text


def test_stages_without_symbols_have_no_chart(stages_report: StagesReport) -> None:
    bare = replace(stages_report, histogram=(), streams=())
    assert "█" not in shown(inspection.stages(bare))


HOSTILE = "\x1b[2J\n" + "x" * 5000


def test_no_string_of_a_header_reaches_the_terminal_as_it_is(header_report: HeaderReport) -> None:
    stage = {"name": HOSTILE, "configuration": {HOSTILE: HOSTILE}}
    text = shown(
        inspection.header(
            replace(
                header_report,
                generator=HOSTILE,
                pipelines=({"name": HOSTILE, "stages": [stage]},),
                metadata={HOSTILE: HOSTILE},
            )
        )
    )
    assert "\x1b" not in text
    assert r"pipeline \x1b[2J\nxxx" in text
    assert text.count("x") < 1500


def test_no_string_of_a_stage_reaches_the_terminal_as_it_is(stages_report: StagesReport) -> None:
    text = shown(
        inspection.stages(
            replace(
                stages_report,
                tensor=replace(stages_report.tensor, name=HOSTILE),
                stages=(StageReport(HOSTILE, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}),),
            )
        )
    )
    assert "\x1b" not in text
    assert text.count("x") < 1500


def test_a_long_tensor_name_is_cut(header_report: HeaderReport) -> None:
    listed = [replace(header_report.tensors[0], name=HOSTILE)]
    assert shown(inspection.tensors(listed, 1)).count("x") < 500


def test_of_many_pipelines_some_are_shown(header_report: HeaderReport) -> None:
    many = replace(header_report, pipelines=header_report.pipelines * 1000)
    text = shown(inspection.header(many))
    assert text.count("pipeline default") == inspection.MAX_PIPELINES
    assert "and 992 more pipelines; --json shows all" in text


def test_the_command_that_restores_takes_a_leading_dash_for_a_name(operation: ReportOf) -> None:
    dashed = replace(operation("compress"), target="-x.safetensors")
    assert "unweight decompress ./-x.safetensors" in shown(operations.compressed(dashed))
