"""A builder of ONNX graphs in which every operator is a method: `g.Softmax(x, axis=-1)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

OPSET, IR_VERSION = 23, 11
CONTRIBUTED = "com.microsoft"


@dataclass(frozen=True)
class Value:
    """A value of a graph: its name, and the operators of arithmetic."""

    graph: Graph
    name: str

    def __add__(self, other: Any) -> Value:
        return self.graph.Add(self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.MatMul(self, other)


class Graph:
    """Arrays and numbers given as operands become constants, None an operand left out."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.made = 0

    def _name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def input(self, array: np.ndarray) -> Value:
        name = self._name()
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        return Value(self, name)

    def constant(self, value: Any) -> Value:
        name = self._name()
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return Value(self, name)

    def _operand(self, value: Any) -> str:
        return "" if value is None else (value if isinstance(value, Value) else self.constant(value)).name

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """An operator; `outputs` says how many values it gives, `domain` whose it is."""

        def add(*operands: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            names = [self._name() for _ in range(outputs)]
            inputs = [self._operand(x) for x in operands]
            self.nodes.append(onnx.helper.make_node(op, inputs, names, domain=domain, **attributes))
            values = [Value(self, name) for name in names]
            return values[0] if outputs == 1 else values

        return add

    def model(self, outputs: list[Value]) -> onnx.ModelProto:
        results = [onnx.ValueInfoProto(name=value.name) for value in outputs]
        graph = onnx.helper.make_graph(self.nodes, "case", self.inputs, results, self.constants)
        opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(CONTRIBUTED, 1)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
