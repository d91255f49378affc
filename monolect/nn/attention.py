"""Define multi-head attention as a layer with PyTorch's parameters.

What it is for: `Tensor.scaled_dot_product_attention` between the projections of torch.nn.MultiheadAttention.
What it is not: keys and values of another width than the query are not supported, and no attention weights are
returned.
Invariant: names and shapes in the state dict are PyTorch's.
Source: torch.nn.MultiheadAttention.
"""

from __future__ import annotations

from math import inf

import numpy as np

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError
from monolect.nn.layers import Linear
from monolect.nn.module import Module
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class MultiheadAttention(Module):
    """Attention with `num_heads` heads over (L, N, E), or over (N, L, E) with `batch_first`; the batch axis N may be
    missing.

    A call returns `(output, None)`; the output has the shape of the query. In a bool mask, True hides a key, as in
    PyTorch's layer. Raises ArgumentError where `num_heads` does not divide `embed_dim`, and for need_weights=True.

    >>> x = Tensor.ones(2, 5, 8)
    >>> MultiheadAttention(8, 2, batch_first=True)(x, x, x)[0].shape
    (2, 5, 8)
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, batch_first: bool = False
    ):
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError("num_heads", expected=f"a divisor of embed_dim {embed_dim}", found=num_heads)
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.in_proj_weight = Tensor.xavier_uniform(3 * embed_dim, embed_dim, requires_grad=True)
        self.in_proj_bias = Tensor(np.zeros(3 * embed_dim, np.float32), requires_grad=True) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if bias:
            self.out_proj.bias = Tensor(np.zeros(embed_dim, np.float32), requires_grad=True)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """See the class. `key_padding_mask` is (N, S), `attn_mask` (L, S) or (N * heads, L, S), for L queries and
        S keys.
        """
        if need_weights:
            raise ArgumentError("attention weights", expected="need_weights=False", found=True)
        batched = query.ndim == 3
        parts = [t if batched else t.unsqueeze(0) for t in (query, key, value)]
        if batched and not self.batch_first:
            parts = [t.transpose(0, 1) for t in parts]
        e = self.embed_dim
        heads = []
        for i, x in enumerate(parts):
            bias = None if self.in_proj_bias is None else self.in_proj_bias[i * e : (i + 1) * e]
            y = x.linear(self.in_proj_weight[i * e : (i + 1) * e], bias)
            heads.append(y.reshape(*y.shape[:-1], self.num_heads, -1).transpose(1, 2))
        if is_causal and attn_mask is None and key_padding_mask is not None:
            attn_mask = Tensor.ones(heads[0].shape[-2], heads[1].shape[-2], dtype=dtypes.bool).triu(1)
        mask, blind = self._mask(attn_mask, key_padding_mask)
        out = heads[0].scaled_dot_product_attention(
            heads[1], heads[2], mask, self.dropout if self.training else 0.0, is_causal and mask is None
        )
        if blind is not None:
            out = blind.where(0.0, out)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if not batched:
            return out.squeeze(0), None
        return (out if self.batch_first else out.transpose(0, 1)), None

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


__all__ = ["MultiheadAttention"]
