"""Render programs as LLVM IR text, and generate machine code from it by LLVM."""
