"""Define the IR: the op table, UOp nodes, derived properties, normal form, text form, checks and rewriting."""

from monolect.ir.rewrite import normal  # noqa: F401  (fills the simplifiers of `build`)
