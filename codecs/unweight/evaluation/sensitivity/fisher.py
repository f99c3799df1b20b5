"""How much each tensor of a model matters: the diagonal of its Fisher information, summed up.

For small changes δ of the weights, KL(before ‖ after) is ½ Σ Fᵢ δᵢ² nats per token, where Fᵢ is the
expected square of the derivative of log p(token) by weight i. It is estimated by gradients on a
calibration text: the tokens to predict are drawn from what the model itself predicts after each
piece of the text. Drawn independently like this, their gradients have a mean of zero, so that the
square of the sum over a window is, on average, the sum of the squares: one backward pass serves
hundreds of tokens.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unweight.evaluation.measure.perplexity import check_fit
from unweight.evaluation.model.language_model import LanguageModel
from unweight.evaluation.model.token_windows import TokenWindows
from unweight.evaluation.model.transformers_calls import memory_errors
from unweight.operations.progress import Progress
from unweight_codecs.errors import QualityGateError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

TITLE: Final = "sensitivity"
SEED: Final = 20240229


@dataclass(frozen=True, slots=True)
class TensorSensitivity:
    """A tensor of the model, and the mean over its weights of their Fisher information.

    Noise of mean square e on all its weights costs about
    ½ · ``parameters`` · ``mean_squared_gradient`` · e nats per token.
    """

    name: str
    shape: tuple[int, ...]
    parameters: int
    mean_square: float
    mean_squared_gradient: float


def sensitivities(
    model: LanguageModel, windows: TokenWindows, progress: Progress
) -> tuple[TensorSensitivity, ...]:
    """Measure every tensor on every token of the windows, in the order of the model.

    Tensors that are used twice, like an embedding that is also the output layer, count once and
    for both. Gradients are squared, summed and freed tensor by tensor while the backward pass runs,
    so that they never take much memory. Raises QualityGateError when one is not finite.
    """
    import torch

    check_fit(model, windows)
    parameters = dict(model.module.named_parameters())
    squares = dict.fromkeys(parameters, 0.0)
    generator = torch.Generator(model.device).manual_seed(SEED)

    def take(name: str) -> "Callable[[torch.Tensor], None]":
        def hook(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                squares[name] += float(parameter.grad.square().sum(dtype=torch.float64))
                parameter.grad = None

        return hook

    hooks = []
    try:
        for name, parameter in parameters.items():
            parameter.requires_grad_(True)
            hooks.append(parameter.register_post_accumulate_grad_hook(take(name)))
        progress.begin(TITLE, windows.nbytes)
        for number, ids in enumerate(windows.ids):
            with torch.enable_grad(), memory_errors("computation"):
                logits = model.logits(ids, 0)
                drawn = torch.multinomial(
                    logits.detach().softmax(-1).nan_to_num(1.0), 1, generator=generator
                )
                loss = torch.nn.functional.cross_entropy(logits, drawn[:, 0], reduction="sum")
                torch.autograd.backward(loss)
            progress.advance(windows.step(number))
        progress.finish()
    finally:
        for hook in hooks:
            hook.remove()
        model.module.requires_grad_(False)
    tokens = windows.ids.size - len(windows.ids)
    found = tuple(
        TensorSensitivity(
            name,
            tuple(parameter.shape),
            parameter.numel(),
            float(parameter.detach().square().mean(dtype=torch.float64)),
            squares[name] / tokens / max(parameter.numel(), 1),
        )
        for name, parameter in parameters.items()
    )
    for tensor in found:
        if not math.isfinite(tensor.mean_squared_gradient):
            raise QualityGateError(
                f"{model.name}: gradients of {quoted(tensor.name)} are not finite"
            )
    return found
