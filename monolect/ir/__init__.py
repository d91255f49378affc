"""The dialect: ops, nodes, derived properties, normal form, text, verification, interpretation, rewriting."""

from monolect.ir.rewrite import normal  # noqa: F401  (fills the simplifiers of `build`)
