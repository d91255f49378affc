"""The dialect: ops, nodes, derived properties, normal form, text, verification, interpretation, rewriting."""

from monolect.ir import normal  # noqa: F401  (fills the simplifiers of `build`)
