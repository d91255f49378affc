"""Define attention as layers: with PyTorch's parameters, with shared key heads, and rotary positions.

What it is for: `Tensor.scaled_dot_product_attention` between projections.
Invariant: names, shapes and initial distributions of MultiheadAttention in the state dict are PyTorch's.
Source: torch.nn.MultiheadAttention; Ainslie et al. (2023) for grouped queries; Su et al. (2021) for rotary positions.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.layers.initial import filled
from monolect.nn.layers.linear import Linear
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods, guarded
from monolect.tensor.tensor import Tensor

Weights = Tensor | None


def _xavier(rows: int, columns: int, device: DeviceLike | None, dtype: DTypeLike | None) -> Tensor:
    return Tensor.xavier_uniform(rows, columns, device=device, dtype=dtype, requires_grad=True)


@guard_methods
class MultiheadAttention(Module):
    """Attention with `num_heads` heads over (L, N, E), or over (N, L, E) with `batch_first`; the batch axis N may be
    missing.

    Keys have `kdim` and values `vdim` elements, by default E. `add_bias_kv` adds a learned key and value to each
    sequence, `add_zero_attn` a key and value of zeros. A call returns `(output, weights)`; the output has the shape of
    the query. In a bool mask, True hides a key, as in PyTorch's layer. Raises ArgumentError where `num_heads` does not
    divide `embed_dim`.

    >>> x = Tensor.ones(2, 5, 8)
    >>> output, weights = MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> output.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError("num_heads", expected=f"a divisor of embed_dim {embed_dim}", found=num_heads)
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        e, made = embed_dim, (device, dtype)
        self.in_proj_weight: Weights = None
        if self.kdim == self.vdim == e:
            self.in_proj_weight = _xavier(3 * e, e, *made)
        else:
            self.q_proj_weight = _xavier(e, e, *made)
            self.k_proj_weight, self.v_proj_weight = _xavier(e, self.kdim, *made), _xavier(e, self.vdim, *made)
        self.in_proj_bias = filled((3 * e,), 0.0, *made) if bias else None
        self.bias_k = self.bias_v = None
        self.out_proj = Linear(e, e, bias, *made)
        if bias:
            self.out_proj.bias = filled((e,), 0.0, *made)
        if add_bias_kv:  # after out_proj in PyTorch's initial values, before it in the order of names
            normal = [Tensor.randn(1, 1, e, device=device, dtype=dtype) * sqrt(1 / e) for _ in range(2)]
            self.bias_k, self.bias_v = (t.requires_grad_() for t in normal)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See the class. `key_padding_mask` is (N, S), `attn_mask` (L, S) or (N * heads, L, S), for L queries and
        S keys.

        With `need_weights` the second result has the weights, (N, L, S), or (N, heads, L, S) unless
        `average_attn_weights`; they cost nothing unless they are used, and have no dropout. `is_causal` hides later
        keys.
        """
        batched = query.ndim == 3
        parts = [t if batched else t.unsqueeze(0) for t in (query, key, value)]
        if batched and not self.batch_first:
            parts = [t.transpose(0, 1) for t in parts]
        q, k, v = (self._projected(i, x) for i, x in enumerate(parts))
        k, v, extra = self._extended(k, v)
        q, k, v = (y.reshape(*y.shape[:-1], self.num_heads, -1).transpose(1, 2) for y in (q, k, v))
        if is_causal and (extra or (attn_mask is None and key_padding_mask is not None)):
            attn_mask = Tensor.ones(q.shape[-2], k.shape[-2] - extra, dtype=dtypes.bool, device=q.device).triu(1)
        mask, blind = self._mask(attn_mask, key_padding_mask)
        if mask is not None and extra:
            mask = mask.pad((0, extra), value=True if mask.dtype is dtypes.bool else 0.0)
        is_causal = is_causal and mask is None
        out = q.scaled_dot_product_attention(k, v, mask, self.dropout if self.training else 0.0, is_causal)
        weights = self._weights(q, k, mask, is_causal, average_attn_weights) if need_weights else None
        if blind is not None:
            out = blind.where(0.0, out)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _projected(self, i: int, x: Tensor) -> Tensor:
        """Return `x` multiplied by the projection of the query (`i` 0), the key (1) or the value (2)."""
        rows = slice(i * self.embed_dim, (i + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        if self.in_proj_weight is not None:
            return x.linear(self.in_proj_weight[rows], bias)
        return x.linear((self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[i], bias)

    def _extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return keys and values with the learned one and the one of zeros, and the number of those."""
        extra = 0
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (y.cat(b.expand(y.shape[0], 1, -1), dim=1) for y, b in ((k, self.bias_k), (v, self.bias_v)))
            extra += 1
        if self.add_zero_attn:
            k, v = k.pad((0, 0, 0, 1)), v.pad((0, 0, 0, 1))
            extra += 1
        return k, v, extra

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, average: bool) -> Tensor:
        """Return the weights of the keys `k` for the queries `q`, with the arguments of the attention."""
        scores: Any = (q * (1.0 / sqrt(self.head_dim))) @ k.transpose(-2, -1)
        if is_causal:
            mask = ~Tensor.ones(*scores.shape[-2:], dtype=dtypes.bool, device=q.device).triu(1)
        if mask is not None:
            scores = mask.where(scores, -inf) if mask.dtype is dtypes.bool else scores + mask
        weights: Tensor = scores.softmax(-1)
        return weights.mean(1) if average else weights

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Merge both masks into the one that `scaled_dot_product_attention` takes: True where a key is visible, or
        numbers to add. Also return a bool Tensor, broadcastable to (N, heads, L, 1): True for a query that sees no
        key because of such numbers. Each of the two is None if it is not needed.
        """
        masks = []
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.reshape(-1, self.num_heads, *attn_mask.shape[1:])
            masks.append(attn_mask)
        if padding is not None:
            masks.append(padding.unsqueeze(1).unsqueeze(1) if padding.ndim == 2 else padding)
        if not masks:
            return None, None
        if all(m.dtype is dtypes.bool for m in masks):
            hidden = masks[0] if len(masks) == 1 else masks[0] | masks[1]
            return ~hidden, None
        added = [m.where(-inf, 0.0) if m.dtype is dtypes.bool else m for m in masks]
        mask = added[0] if len(added) == 1 else added[0] + added[1]
        blind = mask.amax(-1, keepdim=True) == -inf
        return blind.where(0.0, mask), blind


@guarded
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return `(output, weights)` of `nn.MultiheadAttention` with the parameters that are given.

    The query is (L, N, E) or (L, E), E = `embed_dim_to_check`; keys and values are (S, N, ...) or (S, ...).
    `in_proj_weight` (3 E, E) has the projections of all three, unless `use_separate_proj_weight` takes the three
    others. `bias_k` and `bias_v` (1, 1, E) are a key and a value for each sequence, `add_zero_attn` adds one of zeros.
    `dropout_p` acts in `training` only. The masks, the weights and `is_causal` are those of the layer. Raises
    ShapeError for another E, ArgumentError for a missing weight, where `num_heads` does not divide E, and for
    `static_k` or `static_v`, which are not supported.

    >>> x, w = Tensor.ones(5, 2, 8), Tensor.eye(8)
    >>> output, weights = multi_head_attention_forward(
    ...     x, x, x, 8, 2, w.cat(w, w), None, None, None, False, 0.0, w, None
    ... )
    >>> output.shape, weights.shape
    ((5, 2, 8), (2, 5, 5))
    """
    e = query.shape[-1]
    if e != embed_dim_to_check:
        raise ShapeError(
            "multi_head_attention_forward: query", expected=f"(..., {embed_dim_to_check})", found=query.shape
        )
    if num_heads < 1 or e % num_heads:
        raise ArgumentError("num_heads", expected=f"a divisor of {e}", found=num_heads)
    if static_k is not None or static_v is not None:
        expected = "None; call scaled_dot_product_attention with keys that are projected already"
        raise ArgumentError("multi_head_attention_forward: static_k, static_v", expected=expected, found="a Tensor")
    parts = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else (in_proj_weight,)
    if any(w is None for w in parts):
        expected = "q_proj_weight, k_proj_weight, v_proj_weight" if use_separate_proj_weight else "in_proj_weight"
        raise ArgumentError("multi_head_attention_forward: a weight is missing", expected=expected, found="None")
    layer, out_proj = MultiheadAttention.__new__(MultiheadAttention), Linear.__new__(Linear)
    vars(out_proj).update(weight=out_proj_weight, bias=out_proj_bias)
    vars(layer).update(
        embed_dim=e, num_heads=num_heads, head_dim=e // num_heads, dropout=dropout_p, batch_first=False,
        add_zero_attn=add_zero_attn, in_proj_weight=None if use_separate_proj_weight else in_proj_weight,
        q_proj_weight=q_proj_weight, k_proj_weight=k_proj_weight, v_proj_weight=v_proj_weight,
        in_proj_bias=in_proj_bias, bias_k=bias_k, bias_v=bias_v, out_proj=out_proj, training=training,
    )  # fmt: skip
    return layer.forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)


@guard_methods
class RotaryEmbedding(Module):
    """Turn pairs of elements of queries and keys by angles that grow with the position: (..., L, dim) -> the same.

    Element i of the first half of the last axis and element i of the second half are a pair; its angle at position p is
    p / base ** (2 i / dim). The positions are `offset`, `offset` + 1, ... Raises ArgumentError for an odd `dim`,
    ShapeError for another last size.

    >>> x = Tensor.ones(1, 3, 4)
    >>> RotaryEmbedding(4)(x)[0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, dim: int, base: float = 10000.0):
        if dim < 2 or dim % 2:
            raise ArgumentError("RotaryEmbedding: dim", expected="an even number", found=dim)
        self.dim, self.base = dim, base

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """See the class."""
        if x.ndim < 2 or x.shape[-1] != self.dim:
            raise ShapeError("RotaryEmbedding: the input", expected=f"(..., L, {self.dim})", found=x.shape)
        wide = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
        half = self.dim // 2
        rates = self.base ** (Tensor.arange(half, dtype=wide, device=x.device) * (-1.0 / half))
        positions = Tensor.arange(x.shape[-2], dtype=wide, device=x.device) + offset
        angles = positions.unsqueeze(1) * rates
        cosine, sine = angles.cos(), angles.sin()
        first, second = x.cast(wide).chunk(2, -1)
        return (first * cosine - second * sine).cat(second * cosine + first * sine, dim=-1).cast(x.dtype)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"{self.dim}, base={self.base}"


@guard_methods
class GroupedQueryAttention(Module):
    """Self-attention of (N, L, E) in which several query heads share a key and value head, with rotary positions.

    `num_heads` query heads share `num_kv_heads` key and value heads; `head_dim` is E / num_heads by default. With
    `rotary_base` None there are no positions. Raises ArgumentError for heads that do not divide.

    >>> GroupedQueryAttention(8, 4, 2)(Tensor.ones(2, 5, 8)).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int | None = None,
        bias: bool = False,
        rotary_base: float | None = 10000.0,
        dropout: float = 0.0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if num_kv_heads < 1 or num_heads % num_kv_heads or (head_dim is None and embed_dim % num_heads):
            expected = f"num_kv_heads that divides {num_heads} heads, which divide {embed_dim}"
            raise ArgumentError("GroupedQueryAttention: heads", expected=expected, found=(num_heads, num_kv_heads))
        size = embed_dim // num_heads if head_dim is None else head_dim
        self.num_heads, self.num_kv_heads, self.head_dim, self.dropout = num_heads, num_kv_heads, size, dropout
        self.q_proj = Linear(embed_dim, num_heads * size, bias, device, dtype)
        self.k_proj = Linear(embed_dim, num_kv_heads * size, bias, device, dtype)
        self.v_proj = Linear(embed_dim, num_kv_heads * size, bias, device, dtype)
        self.o_proj = Linear(num_heads * size, embed_dim, bias, device, dtype)
        self.rotary = None if rotary_base is None else RotaryEmbedding(size, rotary_base)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, offset: int = 0) -> Tensor:
        """See the class. The mask is that of `Tensor.scaled_dot_product_attention`: True shows a key."""
        n, length = x.shape[:2]
        heads = [
            p(x).reshape(n, length, -1, self.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        ]
        q, k, v = heads
        if self.rotary is not None:
            q, k = self.rotary(q, offset), self.rotary(k, offset)
        p = self.dropout if self.training else 0.0
        out = q.scaled_dot_product_attention(k, v, attn_mask, p, is_causal, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


__all__ = ["GroupedQueryAttention", "MultiheadAttention", "RotaryEmbedding"]
