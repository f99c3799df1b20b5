"""A causal language model in memory: loaded, evaluated, and with some of its weights exchanged."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from unweight.evaluation.model.checkpoint import PlainCheckpoint
from unweight.evaluation.model.token_windows import TokenIds
from unweight.evaluation.model.transformers_calls import ON_PROCESSOR, loading, memory_errors
from unweight_codecs.errors import FormatError, Parameter, Phrase, ResourceError, UsageError, quoted

if TYPE_CHECKING:
    import torch

BEST_DEVICE: Final = "auto"
MAX_NAMED: Final = 3  # tensors that an error lists


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model whose weights and arithmetic are float32.

    Attributes:
        module: The torch module.
        name: What messages call it.
        vocabulary: Number of tokens it tells apart.
        context_limit: The longest window it was made for; None if it does not say.
        device: Where it is, as torch spells it.
        keeps_logits: Whether it can be asked for the logits of the last positions only.
    """

    module: Any
    name: str
    vocabulary: int
    context_limit: int | None
    device: str
    keeps_logits: bool

    def log_probabilities(self, ids: TokenIds, first: int) -> "torch.Tensor":
        """Return the natural logarithm of the probability of every token at every scored position.

        Args:
            ids: One window of token ids.
            first: The first scored position; the last one is the last but one of the window.

        Returns:
            (positions, vocabulary), float32, on the device of the model.
        """
        import torch

        with torch.inference_mode(), memory_errors("computation"):
            return torch.log_softmax(self.logits(ids, first), dim=-1)

    def logits(self, ids: TokenIds, first: int) -> "torch.Tensor":
        """Return the logits at the scored positions, (positions, vocabulary); see above."""
        import torch

        window = torch.from_numpy(ids).to(self.device)[None]
        kept = len(ids) - first
        # The output layer is much of the work and most of the memory: where the model can, it
        # leaves out what is not scored.
        options = {"logits_to_keep": kept} if self.keeps_logits else {}
        logits: torch.Tensor = self.module(input_ids=window, use_cache=False, **options).logits
        return logits[0, -kept:-1].float()


def load(checkpoint: PlainCheckpoint, device: str = BEST_DEVICE) -> LanguageModel:
    """Load a checkpoint for evaluation.

    Raises FormatError when transformers cannot load it, or when the file lacks tensors of the
    model, which transformers would fill with random numbers; ResourceError when it does not fit.
    """
    import torch
    from transformers import AutoModelForCausalLM

    target = choose_device(device)
    weights, options = checkpoint.weights, dict[str, Any]()
    with loading(checkpoint.name, "model"):
        if not weights.is_dir():
            weights, options["gguf_file"] = weights.parent, weights.name
        module, found = AutoModelForCausalLM.from_pretrained(
            weights,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        _check_complete(checkpoint, found)
        module = module.to(target).requires_grad_(False).eval()
    settings = module.config.get_text_config()
    return LanguageModel(
        module,
        str(checkpoint.name),
        int(settings.vocab_size),
        getattr(settings, "max_position_embeddings", None),
        target,
        "logits_to_keep" in inspect.signature(module.forward).parameters,
    )


def choose_device(device: str) -> str:
    """Return the device for ``auto`` (CUDA where torch has it), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises UsageError for another name, ResourceError when torch has no such device.
    """
    import torch

    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == BEST_DEVICE:
        return "cuda" if available else "cpu"
    kind, _, number = device.partition(":")
    if device == "cpu":
        return device
    if kind != "cuda" or not (number.isdecimal() or device == kind):
        raise UsageError(
            f"must be auto, cpu, cuda or cuda:N, not {quoted(device)}", parameter="device"
        )
    if int(number or 0) >= available:
        raise ResourceError(
            Phrase(Parameter("device", device), f": torch sees {available} CUDA devices"),
            hint=ON_PROCESSOR,
        )
    return device


def limit_threads(threads: int) -> None:
    """Let torch use ``threads`` threads; 0 leaves it as it is."""
    import torch

    if threads:
        torch.set_num_threads(threads)


@contextmanager
def replaced(
    model: LanguageModel, weights: Mapping[str, NDArray[np.float32]]
) -> Iterator[LanguageModel]:
    """Put other weights into a model for the time of a block, without loading it again.

    ``weights`` go by the names of the model's parameters, which for most models are the names of
    the tensors in its safetensors files. Raises UsageError for a name or a shape that the model
    does not have.
    """
    import torch

    parameters = parameters_of(model, {name: array.shape for name, array in weights.items()})
    kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        for name, array in weights.items():
            overwrite(parameters[name], array)
        yield model
    finally:
        with torch.no_grad():
            for name, original in kept.items():
                parameters[name].copy_(original)


def parameters_of(
    model: LanguageModel, shapes: Mapping[str, tuple[int, ...]]
) -> "dict[str, torch.Tensor]":
    """Return the parameters of these names.

    Raises UsageError for a name that the model does not have, or has with another shape.
    """
    parameters = model.module.state_dict(keep_vars=True)
    for name, shape in shapes.items():
        if name not in parameters:
            raise UsageError(f"{model.name}: the model has no parameter {quoted(name)}")
        if tuple(parameters[name].shape) != shape:
            raise UsageError(
                f"{model.name}: {quoted(name)} has shape {tuple(parameters[name].shape)}, "
                f"not {shape}"
            )
    return {name: parameters[name] for name in shapes}


def overwrite(parameter: "torch.Tensor", values: NDArray[np.float32]) -> None:
    """Put other values, of the same shape, into a parameter."""
    import torch

    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.asarray(values, np.float32)))


def _check_complete(checkpoint: PlainCheckpoint, found: Mapping[str, Any]) -> None:
    """Raise FormatError unless the tensors of the file are those of the model, all and only.

    transformers fills in what is missing with random numbers and leaves out what it does not know,
    like the scales of a quantised tensor. Either way it would not be this model that is measured.
    """
    for what, kinds in (
        ("lacks", ("missing_keys", "mismatched_keys")),
        ("has more than", ("unexpected_keys",)),
    ):
        names = sorted(str(name) for kind in kinds for name in found[kind])
        if names:
            shown = ", ".join(map(quoted, names[:MAX_NAMED]))
            more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
            raise FormatError(
                f"{checkpoint.name}: {what} the tensors of the model that its config.json "
                f"describes: {shown}{more}",
                hint="is it the config.json of another model?",
            )
