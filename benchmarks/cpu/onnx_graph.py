"""A builder of ONNX graphs in which every operator is a method: `g.Softmax(x, axis=-1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

OPSET, IR_VERSION = 22, 10
CONTRIBUTED = "com.microsoft"


class Graph:
    """Values are names. Arrays and numbers given as operands become constants, None an operand left out."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.made = 0

    def _name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def input(self, array: np.ndarray) -> str:
        name = self._name()
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        return name

    def constant(self, value: Any) -> str:
        name = self._name()
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def _operand(self, value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else self.constant(value)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """An operator; `outputs` says how many values it gives, `domain` whose it is."""

        def add(*operands: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            names = [self._name() for _ in range(outputs)]
            inputs = [self._operand(x) for x in operands]
            self.nodes.append(onnx.helper.make_node(op, inputs, names, domain=domain, **attributes))
            return names[0] if outputs == 1 else names

        return add

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = onnx.helper.make_graph(self.nodes, "case", self.inputs, results, self.constants)
        opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(CONTRIBUTED, 1)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
