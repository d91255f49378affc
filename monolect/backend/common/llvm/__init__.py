"""Programs as LLVM text, and LLVM as a code generator."""
