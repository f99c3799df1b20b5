"""How a text becomes windows, with tokenizers that put BOS once, never or twice before a text."""

import re
from pathlib import Path

import numpy as np
import pytest

from unweight.evaluation import text as texts
from unweight.evaluation.model.token_windows import TokenWindows, cut
from unweight.evaluation.model.tokenizer import Tokenizer
from unweight.evaluation.text import Text, default_text, read_text
from unweight_codecs.errors import FormatError, UsageError

BOS, UNKNOWN = 1, 0


class Letters:
    """A tokenizer of one token per letter that puts ``before`` before a text."""

    bos_token: str | None = "<s>"  # noqa: S105 - a token, but no password
    bos_token_id: int | None = BOS
    unk_token_id: int | None = UNKNOWN

    def __init__(self, *before: int) -> None:
        self.before = before

    def __call__(self, text: str, **options: bool) -> dict[str, list[int]]:
        assert options["add_special_tokens"]
        assert options["split_special_tokens"]
        return {"input_ids": [*self.before, *(ord(c) if c.isascii() else UNKNOWN for c in text)]}


LETTERS = "".join(chr(ord("a") + i % 26) for i in range(100))


def cut_letters(tokenizer: Tokenizer, context: int = 8, limit: int = 0) -> TokenWindows:
    return cut(Text("letters", LETTERS), tokenizer, context, limit)


def test_without_bos_the_text_is_cut_as_it_is() -> None:
    windows = cut_letters(Letters())
    assert windows.bos is None
    assert bytes(windows.ids.astype(np.uint8).reshape(-1)).decode() == LETTERS[:96]


@pytest.mark.parametrize("times", [1, 2])
def test_bos_replaces_the_first_token_of_every_window(times: int) -> None:
    tokens = np.array([BOS] * times + [ord(c) for c in LETTERS])
    windows = cut_letters(Letters(*[BOS] * times))
    assert windows.bos == BOS
    expected = tokens[:96].reshape(12, 8).copy()
    expected[:, 0] = BOS
    assert np.array_equal(windows.ids, expected)


def test_another_token_before_the_text_is_no_bos() -> None:
    windows = cut_letters(Letters(2))
    assert windows.bos is None
    assert windows.ids[0, 0] == 2
    assert windows.ids[1, 0] == ord(LETTERS[7])


@pytest.mark.parametrize(("context", "scored"), [(8, 3), (9, 4), (16, 7), (50, 24)])
def test_the_second_half_is_scored(context: int, scored: int) -> None:
    windows = cut_letters(Letters(), context)
    assert windows.first == context // 2
    assert windows.targets.shape == (len(windows.ids), scored)
    assert np.array_equal(windows.targets[1], windows.ids[1, context // 2 + 1 :])
    assert windows.scored_tokens == windows.targets.size


def test_a_limit_takes_the_first_windows() -> None:
    assert np.array_equal(cut_letters(Letters(), 8, 3).ids, cut_letters(Letters(), 8).ids[:3])
    assert len(cut_letters(Letters(), 8, 99).ids) == 12


def test_two_windows_are_needed() -> None:
    assert len(cut_letters(Letters(), 50).ids) == 2
    with pytest.raises(UsageError) as caught:
        cut_letters(Letters(), 51)
    assert re.search(
        r"100 tokens \(100 characters\).* need 102 .*102 characters", str(caught.value)
    )


def test_a_text_of_unknown_tokens() -> None:
    with pytest.raises(UsageError, match="60% of its tokens are unknown"):
        cut(Text("greek", "αβγδε" * 12 + "x" * 40), Letters(), 8)
    assert len(cut(Text("half", "αβγδε" * 10 + "x" * 50), Letters(), 8).ids) == 12


def test_the_built_in_text() -> None:
    text = default_text()
    assert 80_000 < text.nbytes < 110_000
    assert "\r" not in text.content
    assert text.content.startswith("This document is a collection of slang terms")


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", UsageError, "empty"),
        (b" \n\t", UsageError, "empty"),
        (b"\xef\xbb\xbf", UsageError, "empty"),
        (b"ab\xff", FormatError, "byte 2 is 0xff"),
        ("Straße".encode("utf-16"), FormatError, "not UTF-8"),
    ],
)
def test_files_that_are_no_text(
    data: bytes, kind: type[Exception], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "text"
    path.write_bytes(data)
    with pytest.raises(kind, match=words):
        read_text(path)


def test_a_huge_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_BYTES", 9)
    path = tmp_path / "text"
    path.write_bytes(b"ten bytes!")
    with pytest.raises(UsageError, match="10 bytes is too long"):
        read_text(path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffa line\r\n".encode())
    assert read_text(path).content == "a line\r\n"
