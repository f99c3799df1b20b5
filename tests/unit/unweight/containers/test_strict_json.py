"""JSON that readers of different languages disagree about is refused."""

import pytest

from unweight.containers.strict_json import MAX_DEPTH, MAX_STRUCTURE, parse_object
from unweight_codecs.errors import FormatError


def test_plain_object_is_parsed() -> None:
    assert parse_object(b'{"a": [1, -2, 2.5, true, null, "x"]}', "text") == {
        "a": [1, -2, 2.5, True, None, "x"]
    }


@pytest.mark.parametrize(
    "part", [b"0,", b"[],", b"{},", b'"",'], ids=["numbers", "lists", "objects", "strings"]
)
def test_more_parts_than_are_worth_parsing(part: bytes) -> None:
    text = b'{"a": [' + part * MAX_STRUCTURE + b"0]}"
    with pytest.raises(FormatError, match="text is too complex"):
        parse_object(text, "text")


def test_what_strings_hold_is_not_structure() -> None:
    parts = ",[]{}" * (MAX_STRUCTURE // 4)
    assert parse_object(b'{"a": "' + parts.encode() + b'"}', "text") == {"a": parts}


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t", b"\r", b" \r\n\t "])
def test_json_whitespace_around_the_object_is_allowed(space: bytes) -> None:
    assert parse_object(space + b"{}" + space, "text") == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}\0", id="trailing NUL"),
        pytest.param(b"{}\x0b", id="trailing vertical tab"),
        pytest.param(b"{} {}", id="two documents"),
        pytest.param(b'{"a": 1,}', id="trailing comma"),
        pytest.param(b'{"a": 1', id="unterminated object"),
        pytest.param(b'{"a', id="unterminated string"),
        pytest.param(b'{"a": "\\', id="ends in an escape"),
        pytest.param(b"{'a': 1}", id="single quotes"),
        pytest.param(b'{"a": 01}', id="leading zero"),
        pytest.param(b'{"a": "\n"}', id="raw line break in a string"),
        pytest.param(b'{"a": "\\x41"}', id="unknown escape"),
        pytest.param(b'{"a": NaN}', id="NaN"),
        pytest.param(b'{"a": Infinity}', id="Infinity"),
        pytest.param(b'{"a": -Infinity}', id="-Infinity"),
        pytest.param(b'{"a": 1e999}', id="float out of range"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", id="integer out of range"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b'{"\xff": 1}', id="invalid UTF-8"),
        pytest.param(b'{"\xed\xa0\x80": 1}', id="surrogate in UTF-8"),
        pytest.param(b"[1]", id="array"),
        pytest.param(b"1", id="number"),
    ],
)
def test_anything_but_one_well_formed_object_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"^text is not"):
        parse_object(text, "text")


@pytest.mark.parametrize(
    "text",
    [
        b'{"k": 1, "k": 1}',
        b'{"k": 1, "\\u006b": 2}',
        b'{"a": {"k": 1, "b": 2, "k": 3}}',
        b'{"a": [{"k": 1, "k": 1}]}',
    ],
)
def test_duplicate_key_is_refused_at_any_level(text: bytes) -> None:
    with pytest.raises(FormatError, match="duplicate key 'k'"):
        parse_object(text, "text")


@pytest.mark.parametrize(
    "text",
    [
        b'{"\\ud800": 1}',
        b'{"a": "\\uDC00"}',
        b'{"a": ["\\ude00\\ud83d"]}',
        b'{"a": {"b": "x\\ud83dx"}}',
    ],
)
def test_lone_surrogate_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="lone surrogate"):
        parse_object(text, "text")


def test_surrogate_pair_is_one_character() -> None:
    assert parse_object(b'{"\\ud83d\\ude00": 1}', "text") == {"\U0001f600": 1}


def test_integers_keep_64_bits_and_longer_ones_are_floats() -> None:
    value = parse_object(b'{"a": [18446744073709551615, 100000000000000000000, -0]}', "text")
    assert [type(item) for item in value["a"]] == [int, float, float]
    assert value["a"][0] == 2**64 - 1


def _nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_nesting_is_allowed_up_to_the_limit() -> None:
    assert "a" in parse_object(_nested(MAX_DEPTH), "text")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 20_000, 1_000_000])
def test_deeper_nesting_is_refused(depth: int) -> None:
    with pytest.raises(FormatError, match="nested deeper than 100 levels"):
        parse_object(_nested(depth), "text")


def test_unbalanced_nesting_is_refused() -> None:
    with pytest.raises(FormatError, match="nested deeper"):
        parse_object(b'{"a":' + b'{"a":' * 50_000, "text")


def test_brackets_in_strings_are_not_nesting() -> None:
    text = '"]\\"' + "[" * 1000 + '"'
    assert parse_object(f'{{"a": {text}}}'.encode(), "text") == {"a": ']"' + "[" * 1000}


def test_closing_brackets_in_strings_do_not_hide_nesting() -> None:
    with pytest.raises(FormatError, match="nested deeper"):
        parse_object(b'{"a":' + b'["]",' * 5000 + b"1" + b"]" * 5000 + b"}", "text")


def test_message_shows_a_long_key_shortened() -> None:
    key = b"k" * 1_000_000
    with pytest.raises(FormatError) as caught:
        parse_object(b'{"' + key + b'":1,"' + key + b'":2}', "text")
    assert len(str(caught.value)) < 300
