"""The text that a model is evaluated on: a file, or the one that ships with the package."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from unweight.containers.base import FileSource
from unweight_codecs.errors import FormatError, UsageError

DEFAULT_NAME: Final = "jargon.txt"
MAX_BYTES: Final = 1 << 28  # a text is read and tokenised as a whole


@dataclass(frozen=True, slots=True)
class Text:
    """A text and the name it is reported under."""

    name: str
    content: str

    @property
    def nbytes(self) -> int:
        """Size in UTF-8."""
        return len(self.content.encode())


def default_text() -> Text:
    """Return the text that ships with the package; its README says where it is from."""
    file = resources.files(__package__).joinpath("texts", DEFAULT_NAME)
    return Text(f"{DEFAULT_NAME} (built in)", file.read_text(encoding="utf-8"))


def read_text(path: Path) -> Text:
    """Read a text file; raises UsageError for an empty or huge one, FormatError unless UTF-8."""
    with FileSource(path) as file:
        if file.size > MAX_BYTES:
            raise UsageError(
                f"{path}: a text of {file.size} bytes is too long", hint=f"at most {MAX_BYTES}"
            )
        data = file.read_at(0, file.size)
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}: not UTF-8 text: byte {error.start} is {data[error.start]:#04x}",
            hint="convert it to UTF-8",
        ) from None
    if not content.strip():
        raise UsageError(f"{path}: the text is empty")
    return Text(str(path), content)
