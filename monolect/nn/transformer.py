"""Define the layers of a transformer, with PyTorch's parameters.

What it is not: there are no nested tensors; `enable_nested_tensor` and `mask_check` have no effect.
Invariant: names, shapes and the order of parameters are PyTorch's.
Source: torch.nn.Transformer; Vaswani et al. (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from math import inf
from typing import Any

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.attention import MultiheadAttention
from monolect.nn.containers import ModuleList
from monolect.nn.layers.dropout import Dropout
from monolect.nn.layers.linear import Linear
from monolect.nn.layers.normalization import LayerNorm
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": Tensor.relu, "gelu": Tensor.gelu}


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    """Return the function of an `activation` argument. Raises ArgumentError for another text."""
    if isinstance(given, str):
        if given not in _ACTIVATIONS:
            raise ArgumentError("activation", expected="relu, gelu or a function", found=given)
        return _ACTIVATIONS[given]
    return given


def _copies(module: Module, n: int) -> ModuleList:
    copies: list[Any] = [deepcopy(module) for _ in range(n)]
    return ModuleList(copies)


@guard_methods
class _Layer(Module):
    """Parts that the layers of the encoder and of the decoder share."""

    linear1: Linear
    linear2: Linear
    dropout: Dropout
    activation: Callable[[Tensor], Tensor]

    def _feed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


@guard_methods
class TransformerEncoderLayer(_Layer):
    """Self-attention and a network of two linear layers, each added to its input and normalized.

    Sequences are (L, N, d_model), or (N, L, d_model) with `batch_first`. `activation` is relu, gelu or a function. With
    `norm_first` the inputs of both parts are normalized instead of the sums.

    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(Tensor.ones(2, 5, 8)).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """See the class. The masks are those of `MultiheadAttention`; `is_causal` says that `src_mask` is causal."""

        def attend(x: Tensor) -> Tensor:
            mask = None if is_causal else src_mask
            return self.dropout1(self.self_attn(x, x, x, src_key_padding_mask, False, mask, is_causal=is_causal)[0])

        if self.norm_first:
            x = src + attend(self.norm1(src))
            return x + self.dropout2(self._feed(self.norm2(x)))
        x = self.norm1(src + attend(src))
        return self.norm2(x + self.dropout2(self._feed(x)))


@guard_methods
class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, and a network of two linear layers; each is added to its input and
    normalized.

    The arguments are those of `TransformerEncoderLayer`.

    >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(Tensor.ones(2, 5, 8), Tensor.ones(2, 3, 8)).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        options: Any = {"batch_first": batch_first, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, **options)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (
            LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype) for _ in range(3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """See the class. The masks are those of `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            mask, causal = None if tgt_is_causal else tgt_mask, tgt_is_causal
            return self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, mask, is_causal=causal)[0])

        def look(x: Tensor) -> Tensor:
            mask, causal = None if memory_is_causal else memory_mask, memory_is_causal
            padding = memory_key_padding_mask
            return self.dropout2(self.multihead_attn(x, memory, memory, padding, False, mask, is_causal=causal)[0])

        if self.norm_first:
            x = tgt + attend(self.norm1(tgt))
            x = x + look(self.norm2(x))
            return x + self.dropout3(self._feed(self.norm3(x)))
        x = self.norm1(tgt + attend(tgt))
        x = self.norm2(x + look(x))
        return self.norm3(x + self.dropout3(self._feed(x)))


@guard_methods
class TransformerEncoder(Module):
    """Apply `num_layers` copies of an encoder layer, one after the other, then `norm`.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
    >>> TransformerEncoder(layer, 2)(Tensor.ones(5, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        self.layers, self.num_layers, self.norm = _copies(encoder_layer, num_layers), num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """See the class. The masks are those of the layers."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        out: Tensor = src if self.norm is None else self.norm(src)
        return out


@guard_methods
class TransformerDecoder(Module):
    """Apply `num_layers` copies of a decoder layer, one after the other, then `norm`.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
    >>> TransformerDecoder(layer, 2)(Tensor.ones(5, 2, 8), Tensor.ones(3, 2, 8)).shape
    (5, 2, 8)
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None):
        self.layers, self.num_layers, self.norm = _copies(decoder_layer, num_layers), num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """See the class. The masks are those of the layers."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        out: Tensor = tgt if self.norm is None else self.norm(tgt)
        return out


@guard_methods
class Transformer(Module):
    """An encoder and a decoder: (S, N, d_model), (T, N, d_model) -> (T, N, d_model), or batch first.

    `custom_encoder` and `custom_decoder` replace the standard ones. Raises ShapeError for inputs that do not fit.

    >>> model = Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(Tensor.ones(2, 5, 8), Tensor.ones(2, 3, 8)).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        size = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        rest = (batch_first, norm_first, bias, device, dtype)
        norm = (d_model, layer_norm_eps, True, bias, device, dtype)
        self.encoder: Any = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*size, *rest), num_encoder_layers, LayerNorm(*norm)
        )
        self.decoder: Any = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*size, *rest), num_decoder_layers, LayerNorm(*norm)
        )
        for p in self.parameters():
            if p.ndim > 1:
                new = Tensor.xavier_uniform(*p.shape, device=device, dtype=p.dtype)
                p.uop = new.uop
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """See the class. The masks are those of the layers."""
        if src.ndim != tgt.ndim or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            expected = f"two sequences of {self.d_model} elements"
            raise ShapeError("Transformer: the inputs", expected=expected, found=(src.shape, tgt.shape))
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        out: Tensor = self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return out

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """Return a mask (sz, sz) of numbers to add that hides later keys: -inf above the diagonal, 0 elsewhere.

        >>> nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return Tensor.full((sz, sz), -inf, dtype=dtype, device=device).triu(1)


__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
