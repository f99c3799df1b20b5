"""A source that is closed while others read it gives its own bytes or an error."""

import os
import threading
from pathlib import Path

import pytest

from unweight.containers.base import FileSource
from unweight_codecs.errors import UsageError


def test_closing_waits_for_the_reads_that_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"a" * 8)
    other.write_bytes(b"b" * 8)
    source = FileSource(path)
    began, go = threading.Event(), threading.Event()
    read = os.preadv

    def slow(file: int, buffers: list[memoryview], offset: int) -> int:
        began.set()
        assert go.wait(10)
        return read(file, buffers, offset)

    found: list[bytes] = []
    monkeypatch.setattr("unweight.containers.base.os.preadv", slow)
    thread = threading.Thread(target=lambda: found.append(source.read_at(0, 8)))
    thread.start()
    assert began.wait(10)
    source.close()
    with FileSource(other):  # would be given the number of the closed file
        go.set()
        thread.join()
    assert found == [b"a" * 8]


def test_a_closed_source_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a")
    source = FileSource(path)
    source.close()
    source.close()
    with FileSource(path), pytest.raises(UsageError, match="is closed"):
        source.read_at(0, 1)
