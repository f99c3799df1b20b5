"""The registry, with packages that really bring codecs: a module and its metadata on the path."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.stage_settings import with_settings
from unweight_codecs import plugins, registry
from unweight_codecs.accelerators.registry import ACCELERATORS, list_accelerators
from unweight_codecs.codec import SLOTS_IN_ORDER
from unweight_codecs.errors import FormatError, ResourceError, UnweightError, UsageError
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.model import TensorModel
from unweight_codecs.payload import coders
from unweight_codecs.pipeline import Pipeline, pipeline_from_dict, pipeline_of
from unweight_codecs.presets import preset
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import TensorSpec

MODULE = '''
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unweight_codecs.errors import UsageError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.payload.pack import Pack
from unweight_codecs.codec import Stage
from unweight_codecs.payload.coders import Coder
from unweight_codecs.span import CheckResult


@dataclass(frozen=True)
class Negated(ExponentWindow):
    """Keeps the negative of every float. Of use to nobody."""

    name: ClassVar[str] = "acme.negated"

    def encode(self, span, model):
        negated = replace(span, words=_negative(span.words, model))
        super().encode(negated, model)

    def decode(self, span, model):
        super().decode(span, model)
        span.words[:] = _negative(span.words, model)


def _negative(words, model):
    if not model.layout.is_float:
        return words
    out = words.copy()
    out[model.layout.word_bytes - 1 :: model.layout.word_bytes] ^= 0x80
    return out


@dataclass(frozen=True)
class Masked(Pack):
    """Hides the chunks behind a mask."""

    mask: int = 0x5A

    name: ClassVar[str] = "acme.masked"

    def encode(self, span, model):
        super().encode(span, model)
        span.coded = span.coded ^ np.uint8(self.mask)

    def decode(self, span, model):
        masked, span.coded = span.coded, span.coded ^ np.uint8(self.mask)
        super().decode(span, model)
        span.coded = masked


@dataclass(frozen=True)
class Trusting(Stage):
    """Checks nothing."""

    name: ClassVar[str] = "acme.trusting"
    slot: ClassVar[str] = "bound"

    def check(self, original, decoded, model, epsilon): return CheckResult(decoded.words)


class Misnamed(BitExact):
    name: ClassVar[str] = "acme.other"


class Halves(Coder):
    """Keeps one of two equal halves."""

    name = "acme.halves"

    def encode_values(self, values, bits):
        half = values.size // 2
        return values[:half] if np.array_equal(values[:half], values[half:]) else None

    def decode_values(self, data, count, bits):
        return np.tile(data, 2)


class OtherHalves(Halves):
    name = "acme.other"


class NoStage:
    pass
'''

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a distribution with entry points."""

    def add(distribution: str, group: str = registry.CODECS.group, **points: str) -> None:
        folder = tmp_path / distribution
        info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        rows = [f"{name.replace('__', '.')} = {value}\n" for name, value in points.items()]
        (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(rows)}")
        (folder / "acme_stages.py").write_text(MODULE)
        monkeypatch.syspath_prepend(folder)
        plugins.entry_points.cache_clear()

    yield add
    monkeypatch.undo()
    plugins.entry_points.cache_clear()
    coders._plugin.cache_clear()


def floats(dtype: str, rows: int) -> bytes:
    values = np.random.default_rng(rows).normal(0, 0.02, (rows, 64)).astype("<f4")
    return values.tobytes() if dtype == "F32" else values.view("<u2")[:, 1::2].tobytes()


NEGATED = "acme_stages:Negated"
MASKED = "acme_stages:Masked"


def vendor_pipeline(*settings: str) -> Pipeline:
    return with_settings(preset("default"), settings)


@pytest.mark.parametrize("dtype", ["BF16", "F32", "F8_E4M3", "I16"])
@pytest.mark.parametrize(
    "settings",
    [("outlier=acme.negated",), ("pack=acme.masked:mask=17",), ("bound=acme.trusting",)],
    ids=["outlier", "pack", "bound"],
)
def test_stages_of_a_vendor_in_a_round_trip(
    install: Install,
    each_kernel: str,
    encode_payload: Callable[..., bytes],
    decode_payload: Callable[..., bytes],
    dtype: str,
    settings: tuple[str, ...],
) -> None:
    install(
        "acme",
        acme__negated=NEGATED,
        acme__masked=MASKED,
        acme__trusting="acme_stages:Trusting",
    )
    pipeline = vendor_pipeline(*settings)
    data = np.frombuffer(floats("BF16", 96), np.uint8)
    spec = TensorSpec("t", dtype, (data.size * 8 // {"F32": 32, "F8_E4M3": 8}.get(dtype, 16),))
    coded = encode_payload(pipeline, spec, data)
    decoder = pipeline_from_dict(pipeline.to_dict())
    assert decoder == pipeline
    assert decode_payload(decoder, spec, coded) == data.tobytes()


def test_the_vendors_stage_was_really_used(
    install: Install,
    each_kernel: str,
    encode_payload: Callable[..., bytes],
    decode_payload: Callable[..., bytes],
) -> None:
    install("acme", acme__negated=NEGATED)
    data = np.frombuffer(floats("BF16", 96), np.uint8)
    spec = TensorSpec("t", "BF16", (96, 64))
    coded = encode_payload(vendor_pipeline("outlier=acme.negated"), spec, data)
    plain = np.frombuffer(decode_payload(preset("default"), spec, coded), "<u2")
    assert np.array_equal(plain ^ 0x8000, data.view("<u2"))


def test_a_bound_that_checks_nothing_does_not_switch_the_check_off(
    install: Install, encode_payload: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", acme__trusting="acme_stages:Trusting")
    pipeline = vendor_pipeline("bound=acme.trusting")
    monkeypatch.setattr(Pipeline, "decode", lambda self, span, model: span.words.fill(0))
    data = np.frombuffer(floats("BF16", 96), np.uint8)
    with pytest.raises(UnweightError, match="do not decode to what was encoded"):
        encode_payload(pipeline, TensorSpec("t", "BF16", (96, 64)), data)


def test_a_new_stage_is_not_passed_over_by_a_fused_kernel(
    each_kernel: str, encode_payload: Callable[..., bytes], decode_payload: Callable[..., bytes]
) -> None:
    """Fused kernels stand for stages of exact types, whoever brings the others."""
    calls = list[str]()

    @dataclass(frozen=True)
    class Counting(ExponentWindow):
        def encode(self, span: Span, model: TensorModel) -> None:
            calls.append("encode")
            super().encode(span, model)

        def decode(self, span: Span, model: TensorModel) -> None:
            calls.append("decode")
            super().decode(span, model)

    pipeline = pipeline_of("test", (Counting(), *preset("default").stages[1:]))
    data = np.frombuffer(floats("BF16", 96), np.uint8)
    coded = encode_payload(pipeline, TensorSpec("t", "BF16", (96, 64)), data)
    assert calls == ["encode", "decode"]  # one span, checked at once
    assert decode_payload(pipeline, TensorSpec("t", "BF16", (96, 64)), coded) == data.tobytes()
    assert calls == ["encode", "decode", "decode"]


def test_a_file_with_a_vendors_codec(
    install: Install,
    tmp_path: Path,
    write_model: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("acme", acme__masked=MASKED)
    source = write_model(tmp_path / "m.safetensors", [("w", "BF16", (96, 64), floats("BF16", 96))])
    coded = tmp_path / "m.unweight.safetensors"
    compress(source, coded, CompressOptions(stages=("pack=acme.masked",)), NoProgress())
    back = tmp_path / "back.safetensors"
    decompress(coded, back, threads=1, force=False, progress=NoProgress())
    assert back.read_bytes() == source.read_bytes()

    monkeypatch.setattr(plugins, "entry_points", lambda group: {})  # the package is uninstalled
    with pytest.raises(
        FormatError, match=r"needs the codec 'acme\.masked', which is not installed"
    ):
        decompress(coded, tmp_path / "b", threads=1, force=False, progress=NoProgress())


def test_a_file_with_a_vendors_coder(
    install: Install,
    tmp_path: Path,
    write_model: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("acme", coders.PLUGINS.group, acme__halves="acme_stages:Halves")
    noise = np.random.default_rng(0).bytes(4096)
    source = write_model(tmp_path / "m.safetensors", [("w", "U8", (8, 4096), noise * 8)])
    coded = tmp_path / "m.unweight.safetensors"
    settings = ("pack:coders=acme.halves", "grid:tables=1")
    report = compress(source, coded, CompressOptions(stages=settings), NoProgress())
    assert report.files[0].tensors[0].coded_bytes < len(noise) * 5
    back = tmp_path / "back.safetensors"
    decompress(coded, back, threads=1, force=False, progress=NoProgress())
    assert back.read_bytes() == source.read_bytes()

    monkeypatch.setattr(plugins, "entry_points", lambda group: {})  # the package is uninstalled
    with pytest.raises(FormatError, match=r"the coder 'acme\.halves' is not installed"):
        decompress(coded, tmp_path / "b", threads=1, force=False, progress=NoProgress())
    with pytest.raises(UsageError, match=r"the coder 'acme\.halves' is not installed"):
        vendor_pipeline("pack:coders=acme.halves")


@pytest.mark.parametrize(
    ("name", "value", "kind", "named"),
    [
        ("acme__halves", "acme_stages:NoStage", UnweightError, "is not a Coder"),
        ("acme__halves", "acme_stages:OtherHalves", UnweightError, "calls itself 'acme.other'"),
        ("acme__halves", "acme_stages:Nothing", ResourceError, "does not load"),
    ],
)
def test_coders_that_are_wrong(
    install: Install, name: str, value: str, kind: type[UnweightError], named: str
) -> None:
    install("acme", coders.PLUGINS.group, **{name: value})
    with pytest.raises(kind, match=named):
        coders.coder_named("acme.halves")


def test_codecs_are_listed_with_slot_summary_and_distribution(install: Install) -> None:
    install("acme-codecs", acme__negated=NEGATED)
    rows = registry.list_codecs()
    slots = [SLOTS_IN_ORDER.index(row.slot) for row in rows]
    assert slots == sorted(slots)
    row = next(row for row in rows if row.name == "acme.negated")
    assert (row.slot, row.distribution) == ("outlier", "acme-codecs")
    assert row.summary == "Keeps the negative of every float. Of use to nobody."
    own = {row.name for row in rows if row.distribution == "unweight"}
    assert own == {stage.name for stage in registry.BUILT_IN_STAGES}


def test_a_name_that_two_distributions_bring_names_both(install: Install) -> None:
    install("acme", acme__negated=NEGATED)
    install("acme-fork", acme__negated=NEGATED)
    with pytest.raises(UnweightError) as error:
        registry.codec_class("acme.negated")
    assert "acme-fork" in error.value.message
    assert "both" in error.value.message
    with pytest.raises(UnweightError, match="acme"):
        registry.list_codecs()


def test_a_name_without_a_vendor_is_reserved(install: Install) -> None:
    install("acme", grid2=NEGATED)
    with pytest.raises(UnweightError, match=r"'grid2' of acme.*vendor\.name"):
        registry.codec_class("acme.negated")


WRONG_POINTS = {
    "missing module": ("acme_nothing:Negated", ResourceError, "does not load"),
    "missing class": ("acme_stages:Nothing", ResourceError, "does not load"),
    "no stage": ("acme_stages:NoStage", UnweightError, "is not a Stage"),
    "a module": ("acme_stages", UnweightError, "is not a Stage"),
    "another name": ("acme_stages:Misnamed", UnweightError, "calls itself 'acme.other'"),
}


@pytest.mark.parametrize("case", WRONG_POINTS)
def test_entry_points_that_are_wrong(install: Install, case: str) -> None:
    value, kind, named = WRONG_POINTS[case]
    install("acme", acme__thing=value)
    with pytest.raises(kind) as error:
        registry.codec_class("acme.thing")
    assert named in error.value.message
    assert "acme" in error.value.message


def test_built_in_codecs_cannot_be_replaced(install: Install) -> None:
    install("acme", acme__negated=NEGATED)
    assert (
        registry.codec_class("exponent_window").__module__
        == "unweight_codecs.exact.exponent_window"
    )


def test_an_unknown_codec_with_an_endless_name() -> None:
    with pytest.raises(FormatError) as error:
        registry.codec_class("x" * 100_000)
    assert len(error.value.message) < 400


@pytest.mark.parametrize(
    "configuration",
    [{"tables": 0}, {"tables": "8"}, {"tables": None}, {"size": 1}, {"tables": True}],
)
def test_configurations_that_no_codec_has(configuration: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="stage grid"):
        registry.create_codec("histogram_grid", configuration)


def test_stages_must_fill_the_slots_in_order() -> None:
    stages = preset("default").stages
    for wrong in (stages[:4], stages[::-1], (*stages, stages[0]), ()):
        with pytest.raises(UsageError, match="in this order"):
            pipeline_of("wrong", wrong)


ACCELERATOR = """
class Fast:
    def probe(self, number=0):
        return True, "8 cores of nothing"

    def open(self, number, threads, note):
        raise NotImplementedError


class Engineless:
    def probe(self, number=0):
        return True, "no way to open it"


class Broken:
    def __init__(self):
        raise OSError("no driver")
"""


def test_accelerators_that_fail_are_listed_as_unavailable(install: Install, tmp_path: Path) -> None:
    install(
        "acme",
        ACCELERATORS.group,
        acme__fast="acme_device:Fast",
        acme__broken="acme_device:Broken",
        acme__engineless="acme_device:Engineless",
        acme__missing="acme_device:Missing",
    )
    (tmp_path / "acme" / "acme_device.py").write_text(ACCELERATOR)
    rows = {row.name: row for row in list_accelerators()}
    assert (rows["acme.fast"].available, rows["acme.fast"].detail) == (True, "8 cores of nothing")
    assert rows["acme.broken"].detail == "OSError: no driver"
    assert not rows["acme.broken"].available
    assert not rows["acme.missing"].available
    assert not rows["acme.engineless"].available
    assert rows["acme.engineless"].detail.endswith("of acme is not an Accelerator")


def test_an_accelerator_that_two_distributions_bring_names_both(install: Install) -> None:
    for distribution in ("acme", "acme-fork"):
        install(distribution, ACCELERATORS.group, acme__fast="acme_device:Fast")
    with pytest.raises(UnweightError, match=r"accelerator 'acme.fast' is registered by both acme"):
        ACCELERATORS.load("acme.fast")
